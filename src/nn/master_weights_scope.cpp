#include "hybrid_trainer/nn/master_weights_scope.h"

#include <utility>

namespace hybrid_trainer {

MasterWeightsScope::MasterWeightsScope(LossModel& model) : model_(model) {
  model_.visit_parameters(
      [&](Parameter& parameter) { aside_.push_back(std::exchange(parameter.working, Tensor{})); });
}

MasterWeightsScope::~MasterWeightsScope() {
  std::size_t i = 0;
  model_.visit_parameters(
      [&](Parameter& parameter) { parameter.working = std::move(aside_[i++]); });
}

}  // namespace hybrid_trainer
