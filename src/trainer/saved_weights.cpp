#include "src/trainer/saved_weights.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr const char* kStepsTaken = "optimizer.steps_taken";

void load_optimizer(const State& state, TrainingStep& step) {
  const auto first = state.tensors.lower_bound("optimizer.");
  const bool has_moments = first != state.tensors.end() && first->first.starts_with("optimizer.");
  Optimizer& optimizer = step.optimizer();
  optimizer.leave_device(step.stream());
  optimizer.visit_state([&](const StateLabel& label, Tensor& tensor) {
    if (!has_moments) return fill_zero(tensor, step.stream());  // drop_and_reinitialize's
    const std::string name = "optimizer." + label.name;
    if (!state.tensors.contains(name)) {
      throw DataError(concat("the checkpoint is of another optimizer: it has no ", name,
                             "; use optimizer.name, momentum and state_bits of the run's "
                             "config.json"));
    }
    copy_saved(tensor, state, name, step.stream());
  });
  optimizer.set_steps_taken(state.integer(kStepsTaken));
  optimizer.visit_numbers(
      [&](const std::string& name, double& value) { value = state.real("optimizer." + name); });
}

}  // namespace

void copy_saved(const Tensor& to, const State& state, const std::string& name,
                const Stream& stream) {
  if (to.elements() == 0) return;  // of a part that is another rank's
  const Tensor& from = state.tensor(name);
  if (from.shape() != to.shape()) {
    throw DataError(concat("the checkpoint is of another model: ", name, " is ",
                           from.shape().text(), ", the config wants ", to.shape().text(),
                           "; use the model settings of the run's config.json"));
  }
  wait_for_copy(to, from, stream);
}

void save_weights(State& state, TrainingStep& step, bool is_dropped) {
  for (Parameter* parameter : step.parameters())
    state.tensors["model." + parameter->name()] = parameter->home_master();
  step.optimizer().leave_device(step.stream());
  step.optimizer().visit_state([&](const StateLabel& label, Tensor& tensor) {
    if (tensor) state.tensors["optimizer." + label.name] = tensor;
  });
  state.integers[kStepsTaken] = is_dropped ? 0 : step.optimizer().steps_taken();
  step.optimizer().visit_numbers(
      [&](const std::string& name, double& value) { state.reals["optimizer." + name] = value; });
}

void load_weights(const State& state, TrainingStep& step) {
  for (Parameter* parameter : step.parameters())
    copy_saved(parameter->home_master(), state, "model." + parameter->name(), step.stream());
  load_optimizer(state, step);
}

}  // namespace hybrid_trainer
