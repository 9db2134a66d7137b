#include "hybrid_trainer/planning/rank_step_time.h"

#include <algorithm>

#include "hybrid_trainer/core/pools.h"
#include "src/planning/step_cost.h"
#include "src/sharding/weight_groups.h"
#include "src/trainer/run_model.h"

namespace hybrid_trainer {
namespace {

/// Backward has two products for each of forward.
constexpr double kForwardShare = 1.0 / 3;

double bytes_of(const std::vector<Parameter*>& weights, std::size_t first, std::size_t last) {
  double elements = 0;
  for (std::size_t i = first; i < last; ++i)
    elements += static_cast<double>(weights[i]->elements());
  return elements * static_cast<double>(size_of(DType::kF32));
}

/// Of one after the other, what the link needs beyond the time that there is.
double beyond(double sending, double time) { return std::max(0.0, sending - time); }

}  // namespace

RankStepTime estimate_rank_step(const HybridTrainerConfig& config, Device device, int ranks,
                                const StepTransfer& transfer, const StepRates& rates,
                                double link_bytes_per_second, const ModelRegistry& registry) {
  HybridTrainerConfig own = config;
  own.distributed = {};
  const std::int64_t all = config.gradient_accumulation.micro_batches;
  own.gradient_accumulation.micro_batches = (all + ranks - 1) / ranks;
  const StepCost cost(own, device,
                      simulate_memory(own, device, SimulatedPhases::kUpdates, registry), rates,
                      registry);
  const std::int64_t zero = config.distributed.zero;
  const double update = cost.update_seconds(own), passes = cost.seconds(own) - update;
  const double pass = passes / static_cast<double>(own.gradient_accumulation.micro_batches);
  const double forward = kForwardShare * pass, backward = pass - forward;

  RankStepTime time;
  time.computing = passes + update / (zero > 0 ? ranks : 1);
  time.sending = static_cast<double>(transfer.link_bytes) / link_bytes_per_second;
  if (!config.distributed.overlap) {
    time.exposed = time.sending;
    return time;
  }
  const Stream nowhere(make_device_pool({device.type, device.index, true}));
  const auto model = make_run_model(config, {}, nowhere, registry);
  const std::vector<Parameter*> weights = trainable_parameters(*model);
  const double others = static_cast<double>(ranks - 1) / ranks / link_bytes_per_second;
  const double updated = others * bytes_of(weights, 0, weights.size());
  const WeightGroup edge =
      group_weights(weights, bucket_bytes_for(weights, config.distributed)).back();
  const double at_edge = others * bytes_of(weights, edge.first, edge.last);
  if (zero == 3) {
    time.exposed = beyond(time.sending, passes) + 2 * at_edge;
  } else {
    const double gathered = zero == 0 ? 0 : updated;
    time.exposed = beyond(time.sending - gathered, zero == 2 ? passes - forward : backward) +
                   beyond(gathered, forward) + (zero == 0 ? 1 : 2) * at_edge;
  }
  time.exposed = std::min(time.exposed, time.sending);
  return time;
}

}  // namespace hybrid_trainer
