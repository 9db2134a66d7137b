#include "hybrid_trainer/memory/offload_strategy.h"

#include <array>

#include "hybrid_trainer/core/error.h"
#include "memory/compressed_store.h"
#include "memory/stored_offload.h"

namespace hybrid_trainer {
namespace {

using Pool = std::shared_ptr<MemoryPool>;

/// Leaves everything in place.
class NoOffload final : public OffloadStrategy {
 public:
  Whereabouts whereabouts() const override { return Whereabouts::kResident; }
  MoveOutResult move_out(std::vector<OffloadSlot>, const Stream&) override { return {}; }
  void begin_restore() override {}
  void begin_return() override {}
  void wait_until_restored() override {}
  Restored restored() const override { return Restored::kBits; }
  const OffloadUse& use() const override { return use_; }

 private:
  const OffloadUse use_;
};

std::unique_ptr<OffloadStrategy> none(const PredictAwareMemoryConfig&, Pool, Pool) {
  return std::make_unique<NoOffload>();
}

std::unique_ptr<OffloadStrategy> stored(std::unique_ptr<ContentStore> store,
                                        const PredictAwareMemoryConfig& config) {
  return std::make_unique<StoredOffload>(std::move(store), config.async_restore);
}

std::unique_ptr<OffloadStrategy> to_pool(const PredictAwareMemoryConfig& config, Pool pool,
                                         Pool staging) {
  if (staging == pool) staging = nullptr;
  return stored(std::make_unique<PoolStore>(std::move(pool), Pages::kSwappable, std::move(staging)),
                config);
}

std::unique_ptr<OffloadStrategy> to_locked_pages(const PredictAwareMemoryConfig& config, Pool pool,
                                                 Pool) {
  return stored(std::make_unique<PoolStore>(std::move(pool), Pages::kLocked), config);
}

std::unique_ptr<OffloadStrategy> drop_and_reinitialize(const PredictAwareMemoryConfig& config, Pool,
                                                       Pool) {
  return stored(std::make_unique<ZeroStore>(), config);
}

std::unique_ptr<OffloadStrategy> compress_in_place(const PredictAwareMemoryConfig& config, Pool,
                                                   Pool) {
  return stored(std::make_unique<CompressedStore>(), config);
}

struct Row {
  const char* name;
  std::unique_ptr<OffloadStrategy> (*make)(const PredictAwareMemoryConfig& config, Pool pool,
                                           Pool staging);
};

constexpr std::array kStrategies{
    Row{"none", none},
    Row{"cpu_offload", to_pool},
    Row{"pinned_cpu_offload", to_locked_pages},
    Row{"nvme_offload", to_pool},
    Row{"compress_in_place", compress_in_place},
    Row{"drop_and_reinitialize", drop_and_reinitialize},
};

}  // namespace

const std::vector<std::string>& offload_strategy_names() {
  static const std::vector<std::string> names = names_of(kStrategies);
  return names;
}

std::unique_ptr<OffloadStrategy> make_offload_strategy(const PredictAwareMemoryConfig& config,
                                                       Pool pool, Pool staging) {
  return named_row(kStrategies, "predict_aware_memory.offload_strategy", config.offload_strategy)
      .make(config, std::move(pool), std::move(staging));
}

Pool offload_pool(const PredictAwareMemoryConfig& config, MemoryPlaces& places) {
  const bool may_be_file =
      config.offload_strategy == "cpu_offload" || config.offload_strategy == "nvme_offload";
  if (!may_be_file) return places.host().pool();
  if (config.offload_target != "memory")
    return places.file_in(config.offload_target, "predict_aware_memory.offload_target").pool();
  return places.at(config.offload_strategy == "nvme_offload" ? "file" : "host").pool();
}

}  // namespace hybrid_trainer
