#pragma once

#include <vector>

#include "hybrid_trainer/nn/loss_model.h"

namespace hybrid_trainer {

/// While it lives the model computes with its f32 masters; the bf16 working copies are set aside
/// and come back untouched.
class MasterWeightsScope {
 public:
  explicit MasterWeightsScope(LossModel& model);
  ~MasterWeightsScope();
  MasterWeightsScope(const MasterWeightsScope&) = delete;
  MasterWeightsScope& operator=(const MasterWeightsScope&) = delete;

 private:
  LossModel& model_;
  std::vector<Tensor> aside_;
};

}  // namespace hybrid_trainer
