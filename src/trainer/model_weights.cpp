#include <numeric>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "src/trainer/model_trainable.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kStepsTaken = "optimizer.steps_taken";
/// Values on simulated devices, which compute nothing. Every direction appears to lower the loss,
/// so that predictions begin.
constexpr double kSimulatedDot = 1, kSimulatedSlope = -1;

std::string snapshot_name(const Parameter& parameter) { return "snapshot." + parameter.name(); }

}  // namespace

void copy_saved(const Tensor& to, const State& state, const std::string& name,
                const Stream& stream) {
  if (to.elements() == 0) return;  // owned by another rank
  const Tensor& from = state.tensor(name);
  if (from.shape() != to.shape()) {
    throw DataError(concat("the checkpoint belongs to another model: ", name, " is ",
                           from.shape().text(), ", but the configuration requires ",
                           to.shape().text(), "; use the model settings of the run's config.json"));
  }
  wait_for_copy(to, from, stream);
}

ModelWeights::ModelWeights(ModelTrainable& model, PredictOffload& offload, WeightAverage& average,
                           MemoryPlaces& places)
    : model_(model),
      offload_(offload),
      average_(average),
      places_(places),
      stream_(model.stream()) {}

std::vector<Tensor> ModelWeights::empty_tensors(MemoryKind kind, const Stream& where) const {
  std::vector<Tensor> tensors;
  for (const Parameter* parameter : model_.parameters()) {
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
    copy_or_wait(to[i], model_.parameters()[i]->master_in_place(), stream_);
}

void ModelWeights::add_weights(const std::vector<Tensor>& to, float kept, float added) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    const StagedTensor here(to[i], kept == 0 ? Use::kWrite : Use::kChange, stream_),
        master(model_.parameters()[i]->master_in_place(), Use::kRead, stream_);
    if (kept == 0) {
      kernels::scale(here, master, added, stream_);
      continue;
    }
    if (kept != 1) kernels::scale(here, here, kept, stream_);
    kernels::axpy(here, here, added, master, stream_);
  }
}

double ModelWeights::wait_for_dot(const Tensor& x, const Tensor& y) {
  double dot = 0;
  if (model_.parts()) {
    dot = model_.parts()->wait_for_dot(x, y, stream_);
  } else if (TensorIdentity(x).is_of(y)) {
    const StagedTensor both(x, Use::kRead, stream_);
    dot = kernels::wait_for_dot(both, both, stream_);
  } else {
    const StagedTensor left(x, Use::kRead, stream_), right(y, Use::kRead, stream_);
    dot = kernels::wait_for_dot(left, right, stream_);
  }
  return stream_.device().simulated ? kSimulatedDot : dot;
}

void ModelWeights::move_along(const std::vector<Tensor>& directions, double length) {
  const std::vector<Parameter*>& parameters = model_.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const StagedTensor master(parameters[i]->master_in_place(), Use::kChange, stream_),
        direction(directions[i], Use::kRead, stream_);
    kernels::axpy(master, master, static_cast<float>(length), direction, stream_);
  }
  model_.publish_weights();
}

void ModelWeights::follow(const std::vector<Tensor>& directions, double length) {
  average_.follow(directions, length, stream_);
}

double ModelWeights::wait_for_slope(const std::vector<Tensor>& directions) {
  const double slope = wait_for_scaled_slope(directions) / model_.scales().gradient_loss_scale();
  return stream_.device().simulated ? kSimulatedSlope : slope;
}

double ModelWeights::wait_for_scaled_slope(const std::vector<Tensor>& directions) const {
  const std::vector<Parameter*>& parameters = model_.parameters();
  if (model_.parts()) {
    std::vector<Tensor> gradients;
    for (const Parameter* parameter : parameters) gradients.push_back(parameter->gradient());
    double sum = 0;
    for (const auto& chunks : model_.parts()->wait_for_chunk_dots(gradients, directions, stream_))
      sum += std::accumulate(chunks.begin(), chunks.end(), 0.0);
    return sum;
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
  return sum;
}

void ModelWeights::write_momentum_directions(const std::vector<Tensor>& directions) {
  offload_.wait_until_restored();
  model_.optimizer().write_momentum_directions(directions,
                                               static_cast<float>(model_.learning_rate()), stream_);
}

void ModelWeights::save(State& state) const {
  for (Parameter* parameter : model_.parameters())
    state.tensors["model." + parameter->name()] = parameter->master_in_place();
  Optimizer& optimizer = model_.optimizer();
  optimizer.leave_device(stream_);
  optimizer.visit_state([&](const StateLabel& label, Tensor& tensor) {
    if (tensor) state.tensors["optimizer." + label.name] = tensor;
  });
  state.integers[kStepsTaken] = offload_.is_dropped() ? 0 : optimizer.steps_taken();
  optimizer.visit_numbers(
      [&](const std::string& name, double& value) { state.reals["optimizer." + name] = value; });
}

void ModelWeights::load(const State& state) {
  for (Parameter* parameter : model_.parameters())
    copy_saved(parameter->master_in_place(), state, "model." + parameter->name(), stream_);
  load_optimizer(state);
}

void ModelWeights::load_optimizer(const State& state) {
  const auto first = state.tensors.lower_bound("optimizer.");
  const bool has_moments = first != state.tensors.end() && first->first.starts_with("optimizer.");
  Optimizer& optimizer = model_.optimizer();
  optimizer.leave_device(stream_);
  optimizer.visit_state([&](const StateLabel& label, Tensor& tensor) {
    if (!has_moments) return fill_zero(tensor, stream_);  // dropped by drop_and_reinitialize
    const std::string name = "optimizer." + label.name;
    if (!state.tensors.contains(name)) {
      throw DataError(concat("the checkpoint belongs to another optimizer: it has no ", name,
                             "; use optimizer.name, momentum and state_bits of the run's "
                             "config.json"));
    }
    copy_saved(tensor, state, name, stream_);
  });
  optimizer.set_steps_taken(state.integer(kStepsTaken));
  optimizer.visit_numbers(
      [&](const std::string& name, double& value) { value = state.real("optimizer." + name); });
}

ModelRollback::ModelRollback(ModelTrainable& model, MemoryPlaces& places)
    : model_(model),
      places_(places),
      stream_(model.stream()),
      snapshot_(places.overflow().pool()) {}

void ModelRollback::save_snapshot() { snapshot_.take(model_.parameters(), stream_); }

void ModelRollback::restore_snapshot() {
  snapshot_.restore(model_.parameters(), stream_);
  model_.publish_weights();
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

void ModelRollback::rewind(std::int64_t steps) { model_.rewind(steps); }

void ModelRollback::save(State& state) const {
  for (std::size_t i = 0; i < snapshot_.copies().size(); ++i)
    state.tensors[snapshot_name(*model_.parameters()[i])] = snapshot_.copies()[i];
}

void ModelRollback::load(const State& state) {
  const std::vector<Parameter*>& parameters = model_.parameters();
  snapshot_.drop();
  if (parameters.empty() || !state.tensors.contains(snapshot_name(*parameters.front()))) return;
  save_snapshot();
  stream_.synchronize();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    copy_saved(snapshot_.copies()[i], state, snapshot_name(*parameters[i]), stream_);
}

}  // namespace hybrid_trainer
