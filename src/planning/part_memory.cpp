#include "hybrid_trainer/planning/part_memory.h"

#include <algorithm>
#include <set>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/pools.h"
#include "src/trainer/run_model.h"

namespace hybrid_trainer {
namespace {

std::string first_word(const std::string& name) { return name.substr(0, name.find('.')); }

/// Adds up a pool's blocks by the part that their label names.
class BytesOfParts final : public MemoryListener {
 public:
  explicit BytesOfParts(std::set<std::string> known) : known_(std::move(known)) {}
  void allocated(std::size_t, const MemoryBlock& block) override {
    Sums& sums = of(block);
    std::size_t& now = sums.live[static_cast<std::size_t>(block.kind)];
    now += block.bytes;
    std::size_t& most = sums.most.by_kind[static_cast<std::size_t>(block.kind)];
    most = std::max(most, now);
  }
  void released(std::size_t, const MemoryBlock& block) override {
    of(block).live[static_cast<std::size_t>(block.kind)] -= block.bytes;
  }
  std::vector<PartMemory> parts() const {
    std::vector<PartMemory> parts;
    for (const Sums& one : sums_) parts.push_back(one.most);
    return parts;
  }

 private:
  struct Sums {
    PartMemory most;
    std::array<std::size_t, kMemoryKinds> live{};
  };
  Sums& of(const MemoryBlock& block) {
    const std::string word = first_word(block.label.data());
    const std::string part = known_.contains(word) ? word : "";
    const auto found =
        std::ranges::find_if(sums_, [&](const Sums& one) { return one.most.part == part; });
    if (found != sums_.end()) return *found;
    sums_.push_back({.most = {.part = part}});
    return sums_.back();
  }
  std::set<std::string> known_;
  std::vector<Sums> sums_;
};

}  // namespace

std::vector<PartMemory> simulate_part_memory(const HybridTrainerConfig& config, Device device,
                                             const ModelRegistry& registry) {
  std::set<std::string> words;
  const Stream nowhere(make_device_pool({device.type, device.index, true}));
  make_run_model(config, {}, nowhere, registry)->visit_parameters([&](Parameter& parameter) {
    words.insert(first_word(parameter.name()));
  });
  BytesOfParts bytes(std::move(words));
  simulate_memory(config, device, SimulatedPhases::kUpdates, registry, {}, &bytes);
  return bytes.parts();
}

}  // namespace hybrid_trainer
