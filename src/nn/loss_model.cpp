#include "hybrid_trainer/nn/loss_model.h"

namespace hybrid_trainer {

std::int64_t LossModel::parameter_count() {
  std::int64_t sum = 0;
  visit_parameters([&](const Parameter& parameter) { sum += parameter.elements(); });
  return sum;
}

double LossModel::step_flops(const Batch& batch) {
  double of_token = 0;
  visit_parameters([&](const Parameter& parameter) {
    of_token += (parameter.trainable() ? 6.0 : 4.0) * static_cast<double>(parameter.elements());
  });
  return of_token * static_cast<double>(batch.tokens());
}

}  // namespace hybrid_trainer
