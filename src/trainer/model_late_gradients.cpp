// A model's training where other ranks' gradients, or what they did, come late.
#include "hybrid_trainer/trainer/model_trainable.h"
#include "src/trainer/late_gradients.h"
#include "src/trainer/local_steps.h"
#include "src/trainer/training_step.h"

namespace hybrid_trainer {
namespace {

constexpr const char* kClipScale = "trainer.expected_clip_scale";

std::optional<bool> vote(auto& late, bool asks) {
  if (!late.are_under_way()) return {};
  late.ask_to_stop(asks);
  return late.was_asked_to_stop();
}

}  // namespace

std::optional<GradientMeasurement> ModelTrainable::wait_for_late_gradient(bool all) {
  LateGradients* const late = step_->late_gradients();
  if (late == nullptr) return {};
  return late->wait_for_oldest(all);
}

void ModelTrainable::predict_weights() { step_->late_gradients()->predict(); }

void ModelTrainable::with_exact_weights(const std::function<void()>& use) {
  if (LateGradients* const late = step_->late_gradients()) return late->with_exact(use);
  if (LocalSteps* const local = step_->local_steps()) return local->with_exact(use);
  use();
}

std::optional<bool> ModelTrainable::late_vote_to_stop(bool asks) {
  if (LateGradients* const late = step_->late_gradients()) return vote(*late, asks);
  if (LocalSteps* const local = step_->local_steps()) return vote(*local, asks);
  return {};
}

void ModelTrainable::save_late(State& state) const {
  if (step_->speculation() != nullptr) step_->speculation()->save_late(state);
  if (const LateGradients* const late = step_->late_gradients())
    state.reals[kClipScale] = static_cast<double>(late->expected_clip_scale());
  if (const LocalSteps* const local = step_->local_steps()) local->save(state);
}

void ModelTrainable::drop_late() {
  if (LateGradients* const late = step_->late_gradients()) late->drop();
  if (LocalSteps* const local = step_->local_steps()) local->drop();
  if (step_->speculation() != nullptr) wait_for_exact_weights();
}

void ModelTrainable::load_late(const State& state) {
  LateGradients* const late = step_->late_gradients();
  if (late != nullptr && state.reals.contains(kClipScale))
    late->expect_clip_scale(static_cast<float>(state.real(kClipScale)));
  if (LocalSteps* const local = step_->local_steps()) local->load(state);
}

}  // namespace hybrid_trainer
