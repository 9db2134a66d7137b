#include "hybrid_trainer/memory/offload_strategy.h"

#include "hybrid_trainer/core/error.h"
#include "stored_offload.h"

namespace hybrid_trainer {
namespace {

/// Leaves everything in place.
class NoOffload final : public OffloadStrategy {
 public:
  MoveOutResult move_out(std::vector<OffloadSlot>, const Stream&) override { return {}; }
  void begin_restore() override {}
  void wait_until_restored() override {}
  bool keeps_content() const override { return true; }
};

std::unique_ptr<ContentStore> make_store(const PredictAwareMemoryConfig& config,
                                         std::shared_ptr<MemoryPool> host_pool) {
  if (config.offload_strategy == "drop_and_reinitialize") return std::make_unique<ZeroStore>();
  if (config.offload_target == "memory") return std::make_unique<PoolStore>(std::move(host_pool));
  return std::make_unique<FileStore>(config.offload_target);
}

}  // namespace

std::unique_ptr<OffloadStrategy> make_offload_strategy(const PredictAwareMemoryConfig& config,
                                                       std::shared_ptr<MemoryPool> host_pool) {
  const std::string& name = config.offload_strategy;
  if (name == "none") return std::make_unique<NoOffload>();
  if (name != "cpu_offload" && name != "drop_and_reinitialize") {
    throw ConfigError(
        {choice_problem("predict_aware_memory.offload_strategy", name, offload_strategy_names())});
  }
  return std::make_unique<StoredOffload>(make_store(config, std::move(host_pool)),
                                         config.async_restore);
}

}  // namespace hybrid_trainer
