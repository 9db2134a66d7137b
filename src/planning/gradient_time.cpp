#include "src/planning/gradient_time.h"

#include <algorithm>
#include <vector>

#include "hybrid_trainer/config/phase_precision.h"
#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "src/step/training_step.h"

namespace hybrid_trainer {

HybridTrainerConfig gradient_alone(HybridTrainerConfig config) {
  config.memory = {};
  config.gradient_accumulation.micro_batches = 1;
  config.optimizer = {};
  config.phases = {};  // whose updates, where they are late, are of other optimizers
  config.stretches = {};
  return config;
}

double measure_gradient(Network& network, const HybridTrainerConfig& config, const Batch& batch,
                        const Stream& stream) {
  constexpr int kRuns = 5;
  constexpr double kEnoughSeconds = 0.3;
  MemoryPlaces places(config.memory, stream, make_host_pool(stream.device()));
  TrainingStep step(network, config, stream, places);
  const PhasePrecision precision(config.mixed_precision, config.model.width, stream.device());
  step.compute_in(precision.of(Phase::kFull), false);
  step.wait_for_gradient(batch);
  std::vector<double> seconds;
  const auto first = Clock::now();
  while (seconds.empty() ||
         (std::ssize(seconds) < kRuns && seconds_since(first) < kEnoughSeconds)) {
    const auto begin = Clock::now();
    step.wait_for_gradient(batch);
    seconds.push_back(seconds_since(begin));
  }
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace hybrid_trainer
