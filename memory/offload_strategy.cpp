#include "hybrid_trainer/memory/offload_strategy.h"

#include "memory/stored_offload.h"

namespace hybrid_trainer {

namespace {

using Pool = std::shared_ptr<MemoryPool>;

using Store = std::unique_ptr<ContentStore>;

Store in_pool(Pool pool, Pool staging) {
  if (staging == pool) staging = nullptr;
  return std::make_unique<PoolStore>(std::move(pool), Pages::kSwappable, std::move(staging));
}

Store in_locked_pages(Pool pool, Pool) {
  return std::make_unique<PoolStore>(std::move(pool), Pages::kLocked);
}

struct Row {
  const char* name;
  Store (*make)(Pool pool, Pool staging);  // null: nothing is offloaded
};

constexpr std::array kStrategies{
    Row{"none", nullptr},
    Row{"cpu_offload", in_pool},
    Row{"pinned_cpu_offload", in_locked_pages},
    Row{"nvme_offload", in_pool},
    Row{"compress_in_place",
        [](Pool, Pool) -> Store { return std::make_unique<CompressedStore>(); }},
    Row{"drop_and_reinitialize", [](Pool, Pool) -> Store { return std::make_unique<ZeroStore>(); }},
};

}  // namespace

const std::vector<std::string>& offload_strategy_names() {
  static const std::vector<std::string> names = names_of(kStrategies);
  return names;
}

std::unique_ptr<OffloadStrategy> make_offload_strategy(const PredictAwareMemoryConfig& config,
                                                       Pool pool, Pool staging) {
  const Row& row =
      named_row(kStrategies, "predict_aware_memory.offload_strategy", config.offload_strategy);
  if (row.make == nullptr) return std::make_unique<OffloadStrategy>();
  return std::make_unique<StoredOffload>(row.make(std::move(pool), std::move(staging)),
                                         config.async_restore);
}

Pool offload_pool(const PredictAwareMemoryConfig& config, MemoryPlaces& places) {
  return places.at(config.offload_strategy == "nvme_offload" ? "file" : "host").pool();
}

}  // namespace hybrid_trainer
