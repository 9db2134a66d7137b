#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "src/trainer/model_trainable.h"

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

std::string snapshot_name(const Parameter& parameter) { return "snapshot." + parameter.name(); }

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

ModelWeights::ModelWeights(TrainingStep& step, PredictOffload& offload, WeightAverage& average,
                           MemoryPlaces& places)
    : step_(step), offload_(offload), average_(average), places_(places), stream_(step.stream()) {}

std::vector<Tensor> ModelWeights::empty_tensors(MemoryKind kind, const Stream& where) const {
  std::vector<Tensor> tensors;
  for (const Parameter* parameter : step_.parameters()) {
    const MemoryLabel label(parameter->name());
    tensors.push_back(Tensor::empty(parameter->shape(), DType::kF32, kind, where));
  }
  return tensors;
}

std::vector<Tensor> ModelWeights::empty_like_weights(MemoryKind kind) {
  return empty_tensors(kind, stream_);
}

std::vector<Tensor> ModelWeights::empty_directions() {
  return empty_tensors(MemoryKind::kPredictor,
                       offload_.empties_device() ? places_.overflow() : stream_);
}

void ModelWeights::write_direction(const Tensor& direction, const std::vector<Tensor>& of,
                                   const std::vector<float>& factors) {
  const StagedTensor here(direction, Use::kWrite, stream_);
  for (std::size_t i = 0; i < of.size(); ++i) {
    const StagedTensor term(of[i], Use::kRead, stream_);
    if (i == 0) {
      kernels::scale(here, term, factors[i], stream_);
    } else {
      kernels::axpy(here, here, factors[i], term, stream_);
    }
  }
}

void ModelWeights::copy_weights(const std::vector<Tensor>& to) {
  for (std::size_t i = 0; i < to.size(); ++i)
    copy_or_wait(to[i], step_.parameters()[i]->home_master(), stream_);
}

void ModelWeights::add_weights(const std::vector<Tensor>& to, float kept, float added) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    const StagedTensor here(to[i], kept == 0 ? Use::kWrite : Use::kChange, stream_),
        master(step_.parameters()[i]->home_master(), Use::kRead, stream_);
    if (kept == 0) {
      kernels::scale(here, master, added, stream_);
      continue;
    }
    if (kept != 1) kernels::scale(here, here, kept, stream_);
    kernels::axpy(here, here, added, master, stream_);
  }
}

double ModelWeights::wait_for_dot(const Tensor& x, const Tensor& y) {
  if (step_.parts()) return step_.parts()->wait_for_dot(x, y, stream_);
  if (TensorIdentity(x).is_of(y)) {
    const StagedTensor both(x, Use::kRead, stream_);
    return kernels::wait_for_dot(both, both, stream_);
  }
  const StagedTensor left(x, Use::kRead, stream_), right(y, Use::kRead, stream_);
  return kernels::wait_for_dot(left, right, stream_);
}

void ModelWeights::move_along(const std::vector<Tensor>& directions, double length) {
  const std::vector<Parameter*>& parameters = step_.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const StagedTensor master(parameters[i]->home_master(), Use::kChange, stream_),
        direction(directions[i], Use::kRead, stream_);
    kernels::axpy(master, master, static_cast<float>(length), direction, stream_);
  }
  step_.publish_weights();
}

void ModelWeights::follow(const std::vector<Tensor>& directions, double length) {
  average_.follow(directions, length, stream_);
}

double ModelWeights::wait_for_slope(const std::vector<Tensor>& directions) {
  const std::vector<Parameter*>& parameters = step_.parameters();
  if (step_.parts()) {
    std::vector<Tensor> gradients;
    for (const Parameter* parameter : parameters) gradients.push_back(parameter->gradient());
    double sum = 0;
    for (const auto& chunks : step_.parts()->wait_for_chunk_dots(gradients, directions, stream_))
      sum += std::accumulate(chunks.begin(), chunks.end(), 0.0);
    return sum / step_.scales().gradient_loss_scale();
  }
  std::vector<Tensor> slopes;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor given = parameters[i]->gradient();
    if (!given) continue;
    const StagedTensor gradient(given, Use::kRead, stream_),
        direction(directions[i], Use::kRead, stream_);
    slopes.push_back(kernels::empty_result(stream_));
    kernels::dot(slopes.back(), {&static_cast<const Tensor&>(gradient), 1},
                 {&static_cast<const Tensor&>(direction), 1}, {}, stream_);
  }
  double sum = 0;
  for (const Tensor& slope : slopes) sum += kernels::wait_for_value(slope, stream_);
  return sum / step_.scales().gradient_loss_scale();
}

void ModelWeights::write_momentum_directions(const std::vector<Tensor>& directions) {
  offload_.wait_until_restored();
  step_.optimizer().write_momentum_directions(directions, static_cast<float>(step_.rates().rate()),
                                              stream_);
}

ModelRollback::ModelRollback(TrainingStep& step, PhasePosition& position, MemoryPlaces& places)
    : step_(step),
      position_(position),
      places_(places),
      stream_(step.stream()),
      snapshot_(places.overflow().pool()) {}

void ModelRollback::save_snapshot() { snapshot_.take(step_.parameters(), stream_); }

void ModelRollback::restore_snapshot() {
  snapshot_.restore(step_.parameters(), stream_);
  step_.publish_weights();
}

Batch ModelRollback::keep_batch(const Batch& batch) {
  return batch.with([&](const Tensor& part) {
    const Tensor kept = Tensor::empty_like(part, MemoryKind::kData, places_.overflow());
    wait_for_copy(kept, part, stream_);
    return kept;
  });
}

Batch ModelRollback::fetch_batch(const Batch& kept) {
  return kept.with([&](const Tensor& part) { return wait_for_device(part, stream_); });
}

void ModelRollback::save(State& state) const {
  for (std::size_t i = 0; i < snapshot_.copies().size(); ++i)
    state.tensors[snapshot_name(*step_.parameters()[i])] = snapshot_.copies()[i];
}

void ModelRollback::load(const State& state) {
  const std::vector<Parameter*>& parameters = step_.parameters();
  snapshot_.drop();
  if (parameters.empty() || !state.tensors.contains(snapshot_name(*parameters.front()))) return;
  save_snapshot();
  stream_.synchronize();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    copy_saved(snapshot_.copies()[i], state, snapshot_name(*parameters[i]), stream_);
}

}  // namespace hybrid_trainer
