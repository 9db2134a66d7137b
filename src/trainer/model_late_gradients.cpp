// A model's training where gradients of other ranks come late.
#include "hybrid_trainer/trainer/model_trainable.h"
#include "src/trainer/late_gradients.h"
#include "src/trainer/training_step.h"

namespace hybrid_trainer {

double ModelTrainable::wait_for_own_gradient(const Batch& batch) {
  return step_->wait_for_own_gradient(batch);
}

std::optional<GradientMeasurement> ModelTrainable::wait_for_late_gradient(bool all) {
  LateGradients* const late = step_->late_gradients();
  if (late == nullptr) return {};
  return late->wait_for_oldest(all);
}

void ModelTrainable::predict_weights() { step_->late_gradients()->predict(); }

void ModelTrainable::with_exact_weights(const std::function<void()>& use) {
  if (LateGradients* const late = step_->late_gradients()) return late->with_exact(use);
  use();
}

std::optional<bool> ModelTrainable::late_vote_to_stop(bool asks) {
  LateGradients* const late = step_->late_gradients();
  if (late == nullptr || !late->are_under_way()) return {};
  late->ask_to_stop(asks);
  return late->was_asked_to_stop();
}

}  // namespace hybrid_trainer
