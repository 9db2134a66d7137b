#include "phases/asynchronous_optimizer/asynchronous_optimizer.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

std::string AsynchronousOptimizerMethod::text(const PhaseConfig& config) {
  const AsynchronousOptimizerConfig& group = config.asynchronous_optimizer;
  return concat(" with an asynchronous optimizer, updates ", group.delay,
                group.delay == 1 ? " step" : " steps", " late, predicted by ", group.device_side,
                ", exact state in ", group.exact_state == "host" ? "host memory" : "a file");
}

}  // namespace hybrid_trainer
