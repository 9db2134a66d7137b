#include "src/trainer/planning/memory_breakdown.h"

#include <set>

#include "src/files/config_fields.h"
#include "src/trainer/run_model.h"

namespace hybrid_trainer {

namespace {

struct MemoryOption {
  const char* key;
  const char* off;
};

constexpr const char* kMethod = "phases.method";
constexpr const char* kOffloadKey = "predict_aware_memory.offload_strategy";
constexpr MemoryOption kMemoryOptions[] = {
    {"memory.recompute", "0"},
    {"memory.activations", "device"},
    {"memory.activation_bits", "32"},
    {"memory.optimizer_state", "device"},
    {"memory.weights", "device"},
    {"memory.gradients", "keep"},
    {"memory.gradient_bits", "32"},
    {"optimizer.state_bits", "32"},
    {"optimizer.paged", "false"},
    {kMethod, "skip_backward"},
    {kOffloadKey, "none"},
};
constexpr const char* kMicroBatchesKey = "gradient_accumulation.micro_batches";

std::string text_at(const HybridTrainerConfig& config, const char* path) {
  return field_text(*field_at(field_tree(config), path));
}

std::int64_t less(std::size_t without, std::size_t with) {
  return static_cast<std::int64_t>(without) - static_cast<std::int64_t>(with);
}

std::string first_word(const std::string& name) { return name.substr(0, name.find('.')); }

/// Sums the blocks of a pool by the part in their label.
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

std::vector<MemorySaving> simulate_savings(const HybridTrainerConfig& config, Device device,
                                           const ModelRegistry& registry,
                                           const SimulatedRank& rank) {
  HybridTrainerConfig as_is = config;
  as_is.memory.host_budget = {};  // unlimited in the simulation
  const MemoryNeed with = simulate_memory(as_is, device, SimulatedPhases::kAll, registry, rank);
  std::vector<MemorySaving> savings;
  const auto add = [&](const char* key, const HybridTrainerConfig& changed) {
    const std::string value = text_at(config, key);
    if (value == text_at(changed, key)) return;
    const MemoryNeed without =
        simulate_memory(changed, device, SimulatedPhases::kAll, registry, rank);
    MemorySaving& saving = savings.emplace_back();
    saving.option = key;
    saving.value = value;
    saving.device_bytes = less(without.device_bytes, with.device_bytes);
    for (std::size_t i = 0; i < kPhases; ++i)
      saving.by_phase[i] = less(without.phases[i].peak_bytes, with.phases[i].peak_bytes);
  };
  for (const auto& [key, off] : kMemoryOptions) {
    if (key == kMethod && config.phases.traits().runs_ahead_of_ranks) continue;  // chosen for speed
    const bool predicts = config.phases.max_predict_steps > 0;
    if (key == kOffloadKey && (!predicts || config.optimizer_state_home() != "device")) continue;
    HybridTrainerConfig changed = as_is;
    set_field(changed, key, off);
    if (key == kMethod) changed.memory.gradient_bits = 32;  // 16 requires delayed updates
    add(key, changed);
  }
  if (rank.ranks > 1) return savings;  // each rank needs a micro-batch
  HybridTrainerConfig whole = as_is;
  whole.data.batch_size *= whole.gradient_accumulation.micro_batches;
  whole.gradient_accumulation.micro_batches = 1;
  add(kMicroBatchesKey, whole);
  return savings;
}

std::vector<PartMemory> simulate_part_memory(const HybridTrainerConfig& config, Device device,
                                             const ModelRegistry& registry) {
  std::set<std::string> words;
  const Stream simulated_stream(make_device_pool({device.type, device.index, true}));
  make_run_model(config, {}, simulated_stream, registry)
      ->visit_parameters([&](Parameter& parameter) { words.insert(first_word(parameter.name())); });
  BytesOfParts bytes(std::move(words));
  simulate_memory(config, device, SimulatedPhases::kUpdates, registry, {}, &bytes);
  return bytes.parts();
}

}  // namespace hybrid_trainer
