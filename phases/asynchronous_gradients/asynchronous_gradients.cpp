#include "phases/asynchronous_gradients/asynchronous_gradients.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

std::string AsynchronousGradientsMethod::text(const PhaseConfig& config) {
  const AsynchronousGradientsConfig& group = config.asynchronous_gradients;
  return concat(" with asynchronous gradients ", group.delay, group.delay == 1 ? " step" : " steps",
                " late, predicted by ", group.device_side);
}

}  // namespace hybrid_trainer
