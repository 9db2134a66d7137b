#include "src/step/step_parts.h"

#include "hybrid_trainer/config/rank_checks.h"
#include "hybrid_trainer/memory/device_map.h"
#include "hybrid_trainer/optim/make_optimizer.h"
#include "hybrid_trainer/optim/speculative_optimizer.h"

namespace hybrid_trainer {
namespace {

WeightSharing sharing_of(const HybridTrainerConfig& config, std::int64_t bucket_bytes) {
  const DistributedConfig& given = config.distributed;
  return {.apart = given.zero == 3,
          .beside = given.overlap && DeviceMap(config.memory).farthest() == "device",
          .bucket_bytes = bucket_bytes,
          .bytes_ahead = static_cast<std::size_t>(given.overlap ? bucket_bytes : 0)};
}

}  // namespace

std::unique_ptr<WeightParts> make_weight_parts(const HybridTrainerConfig& config,
                                               const std::vector<Parameter*>& weights,
                                               Communicator* ranks, const Stream& stream) {
  // What a run takes is simulated as if it were one rank's in places.
  const bool is_alone_for_real = ranks == nullptr && !stream.device().simulated;
  if (ranks != nullptr || (is_alone_for_real && config.phases.runs_ahead_of_ranks()))
    check_ranks(config, ranks == nullptr ? 1 : ranks->size());
  if (ranks == nullptr || config.distributed.zero == 0) return {};
  return std::make_unique<WeightParts>(
      weights, config.optimizer, *ranks,
      sharing_of(config, bucket_bytes_for(weights, config.distributed)), stream);
}

std::unique_ptr<Optimizer> make_step_optimizer(const HybridTrainerConfig& config,
                                               const std::vector<Parameter*>& parameters,
                                               const Stream& stream, MemoryPlaces& places) {
  const Stream& home = places.at(config.optimizer_state_home());
  if (!config.phases.delays_updates()) {
    return make_optimizer(
        config.optimizer, parameters, stream, home, config.device_budget(),
        config.optimizer_state_home() == "file" ? Copies::kBeside : Copies::kInStream);
  }
  const SpeculationSettings settings{
      .lag = config.phases.asynchronous_optimizer.delay,
      .device_side = config.phases.asynchronous_optimizer.device_side,
      .worker_threads = static_cast<int>(config.phases.asynchronous_optimizer.worker_threads),
      .gradient_bits = config.memory.gradient_bits};
  return std::make_unique<SpeculativeOptimizer>(config.optimizer, parameters, settings, stream,
                                                places.host().pool(), home);
}

}  // namespace hybrid_trainer
