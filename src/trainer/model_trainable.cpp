#include "hybrid_trainer/trainer/model_trainable.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/staged_tensor.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/memory/away_weight.h"
#include "src/trainer/late_gradients.h"
#include "src/trainer/local_steps.h"
#include "src/trainer/stretches.h"
#include "src/trainer/training_step.h"

namespace hybrid_trainer {
namespace {

constexpr const char* kRoundedState = "optimizer.is_rounded";
constexpr const char* kSlowShare = "optimizer.slow_share";

/// Number of inputs of the largest matrix: the width of this model's products.
std::int64_t typical_width(LossModel& model) {
  std::int64_t width = 64, most = 0;
  model.visit_parameters([&](const Parameter& parameter) {
    if (!is_matrix(parameter.role()) || parameter.elements() <= most) return;
    most = parameter.elements();
    width = parameter.shape()[1];
  });
  return width;
}

/// Of forward and backward: two for each weight and product, of which a frozen weight's gradient is
/// none.
double flops_of_token(LossModel& model) {
  double sum = 0;
  model.visit_parameters([&](const Parameter& parameter) {
    sum += (parameter.trainable() ? 6.0 : 4.0) * static_cast<double>(parameter.elements());
  });
  return sum;
}

/// Scales of codes take little, and each is the size of a whole block.
SlotRounding rounding_of(StateRole role) {
  switch (role) {
    case StateRole::kSecondMoment:
    case StateRole::kSharedSecondMoment:
      return SlotRounding::kNonNegative;
    case StateRole::kCodes:
    case StateRole::kScales:
      return SlotRounding::kNone;
    case StateRole::kMomentum:
    case StateRole::kSlowMomentum:
      break;
  }
  return SlotRounding::kSigned;
}

/// What is on the host already stays.
PredictAwareMemoryConfig predict_aware(const HybridTrainerConfig& config) {
  PredictAwareMemoryConfig memory = config.predict_aware_memory;
  if (config.optimizer_state_home() != "device") memory.offload_strategy = "none";
  return memory;
}

/// Late updates are no reason for another precision than Full's.
MixedPrecisionConfig precision_of(const HybridTrainerConfig& config) {
  MixedPrecisionConfig precision = config.mixed_precision;
  if (!config.phases.predicts_backward() && precision.predict == "auto")
    precision.predict = precision.full;
  return precision;
}

/// A host budget is for what has nowhere else to be.
std::shared_ptr<MemoryPool> staging_of(const HybridTrainerConfig& config,
                                       const MemoryPlaces& places) {
  return config.memory.host_budget.limit() ? nullptr : places.host().pool();
}

void copy_from(const Tensor& to, const State& state, const std::string& name,
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

}  // namespace

ModelTrainable::ModelTrainable(LossModel& model, const HybridTrainerConfig& config,
                               const Stream& stream, std::shared_ptr<MemoryPlaces> places,
                               std::function<void(const std::string&)> tell, Communicator* ranks)
    : stream_(stream),
      places_(std::move(places)),
      micro_batches_of_config_(config.gradient_accumulation.micro_batches),
      budget_bytes_(config.device_budget().value_or(0)),
      flops_per_token_(flops_of_token(model)),
      predicts_backward_(config.phases.predicts_backward()),
      empties_predict_(predicts_backward_ &&
                       config.predict_aware_memory.offload_strategy != "none"),
      tell_(std::move(tell)),
      step_(std::make_unique<TrainingStep>(model, config, stream, *places_, ranks)),
      stretches_(std::make_unique<Stretches>(config)),
      precision_(precision_of(config), typical_width(model), stream.device()),
      offload_(make_offload_strategy(predict_aware(config),
                                     offload_pool(predict_aware(config), *places_),
                                     staging_of(config, *places_))),
      snapshot_(places_->overflow().pool()),
      average_(config.training.average_weights, places_->overflow()) {
  micro_batches_.fill(micro_batches_of_config_);
  const DeviceMap map(config.memory);
  if (map.farthest() != "device") move_weights(model, map, *places_);
}

ModelTrainable::~ModelTrainable() = default;

/// Recordings hold the memory of a backward pass, so there is none in Predict, whose few gradients
/// are those of micro-corrections.
void ModelTrainable::enter_phase(Phase phase) {
  take_micro_batches_of(phase);
  step_->optimizer().leave_device(stream_);
  phase_ = phase;
  const bool predicts = phase == Phase::kPredict && predicts_backward_;
  if (predicts) {
    step_->free_gradients();
    move_state_out();
  } else {
    is_rounded_ = false;
    for (Parameter* parameter : step_->weights()) parameter->recall_master();
  }
  step_->compute_in(*(dtype_ = dtype_here()), !predicts);
  if (predicts) park_masters();
  if (phase == Phase::kPredict && step_->speculation() != nullptr) begin_lag();
  if (border_) return;  // Full's precision in a step of Correct
  border_ = stream_.pool()->use();
  stream_.pool()->reset_peaks();
}

/// Updates stay in step where there is no room for those under way.
void ModelTrainable::begin_lag() {
  try {
    step_->speculation()->begin_lag(step_->rates_to_come(), stream_);
  } catch (const OutOfMemory& error) {
    tell_(concat("updates are not late: ", error.what()));
  }
}

LateUpdate ModelTrainable::wait_for_late_update(bool finite) {
  if (LateGradients* const late = step_->late_gradients()) return late->apply(finite);
  if (!step_->speculation()->is_late()) {
    if (finite) apply_gradient();
    return {};
  }
  ArrivedUpdate arrived = step_->wait_for_late_update(finite);
  return {arrived.prediction_error, std::move(arrived.worst_weight), true, arrived.lag};
}

LocalStep ModelTrainable::wait_for_exact_weights() {
  if (LocalSteps* const local = step_->local_steps()) return local->end();
  if (LateGradients* const late = step_->late_gradients()) {
    late->end();
  } else {
    step_->speculation()->wait_for_exact_weights(stream_);
  }
  return {};
}

bool ModelTrainable::is_one_of_several() const { return step_->is_one_of_several(); }
const WeightParts* ModelTrainable::parts() const { return step_->parts(); }
void ModelTrainable::send_weights() { step_->send_weights(); }

SpeculationUse ModelTrainable::speculation_use() const {
  return step_->speculation() == nullptr ? SpeculationUse{} : step_->speculation()->use();
}

/// What was rounded already, and came back for a checkpoint, stays: rounded again it would differ
/// from the state of a run that did not save.
void ModelTrainable::move_state_out() {
  if (offload_->whereabouts() != Whereabouts::kResident || is_rounded_) return;
  std::vector<OffloadSlot> slots;
  step_->optimizer().visit_state([&](const StateLabel& label, Tensor& tensor) {
    slots.push_back({label.name, &tensor, rounding_of(label.role)});
  });
  const MoveOutResult result = offload_->move_out(std::move(slots), stream_);
  if (!result.problem.empty() && is_one_of_several() && offload_->restored() != Restored::kBits) {
    throw Error(
        ExitCode::kMemory,
        concat("predict_aware_memory.offload_strategy: ", result.problem,
               "; of several ranks none keeps what others round; cpu_offload rounds nothing"));
  }
  if (!result.problem.empty()) tell_("the optimizer state stays where it is: " + result.problem);
}

/// Their memory may be reused at once: work is enqueued in stream order.
void ModelTrainable::park_masters() {
  if (!empties_predict_) return;
  try {
    for (Parameter* parameter : step_->weights()) parameter->park_master(places_->host(), stream_);
  } catch (const OutOfMemory& error) {
    for (Parameter* parameter : step_->weights()) parameter->recall_master();
    tell_(concat("the masters stay where they are: ", error.what()));
  }
  stream_.pool()->trim();
}

/// From its first use of the device on, a phase other than Predict has the optimizer state on its
/// way back.
void ModelTrainable::begin_return() {
  offload_->release_moved_out();
  if (phase_ != Phase::kPredict) offload_->begin_return();
}

void ModelTrainable::bring_state_back() {
  if (offload_->whereabouts() == Whereabouts::kResident) return;
  offload_->wait_until_restored();
  if (offload_->restored() == Restored::kZeros) step_->optimizer().set_steps_taken(0);
}

void ModelTrainable::begin_restore() { offload_->begin_restore(); }

void ModelTrainable::apply_gradient() {
  bring_state_back();
  step_->apply_gradient();
  if (step_->parts()) step_->publish_weights();
  average_.add(step_->parameters(), stream_);
}

void ModelTrainable::rewind(std::int64_t steps) {
  rewound_ = steps;
  go_to_step();
}

void ModelTrainable::scale_learning_rate(double factor) { step_->scale_learning_rate(factor); }

void ModelTrainable::set_steps_done(std::int64_t steps) {
  steps_done_ = steps;
  go_to_step();
}

/// In Warmup and Full a stretch may compute in a precision of its own.
DType ModelTrainable::dtype_here() const {
  const bool is_stretched = phase_ == Phase::kWarmup || phase_ == Phase::kFull;
  const std::optional<DType> own = stretches_->at(steps_done_ - rewound_).precision;
  return is_stretched && own ? *own : precision_.of(phase_);
}

void ModelTrainable::go_to_step() {
  step_->set_steps_done(steps_done_ - rewound_);
  if (dtype_ && dtype_here() != *dtype_) step_->compute_in(*(dtype_ = dtype_here()), true);
}

double ModelTrainable::learning_rate() const { return step_->learning_rate(); }
void ModelTrainable::set_rate_factor(double factor) { step_->set_rate_factor(factor); }

void ModelTrainable::exchange_average() {
  average_.exchange(step_->parameters(), stream_);
  if (!step_->parts()) return;
  step_->publish_weights();
  step_->send_weights();
}

void ModelTrainable::save_snapshot() { snapshot_.take(step_->parameters(), stream_); }

void ModelTrainable::restore_snapshot() {
  snapshot_.restore(step_->parameters(), stream_);
  step_->publish_weights();
}

void ModelTrainable::save(State& state) {
  step_->require_whole_update();
  stream_.synchronize();
  before_save_ = offload_->whereabouts();
  if (offload_->restored() != Restored::kZeros || phase_ != Phase::kPredict) bring_state_back();
  if (offload_->restored() == Restored::kRounded) {
    is_rounded_ = is_rounded_ || before_save_ != Whereabouts::kResident;
    state.integers[kRoundedState] = is_rounded_ ? 1 : 0;
  }
  const std::vector<Parameter*>& parameters = step_->parameters();
  for (Parameter* parameter : parameters) {
    state.tensors["model." + parameter->name()] = parameter->home_master();
  }
  step_->optimizer().leave_device(stream_);
  step_->optimizer().visit_state([&](const StateLabel& label, Tensor& tensor) {
    if (tensor) state.tensors["optimizer." + label.name] = tensor;
  });
  save_micro_batches(state);
  const bool is_dropped =
      offload_->restored() == Restored::kZeros && offload_->whereabouts() != Whereabouts::kResident;
  state.integers["optimizer.steps_taken"] = is_dropped ? 0 : step_->optimizer().steps_taken();
  if (const SlowNesterov* const slow = step_->slow_momentum())
    state.reals[kSlowShare] = slow->share();
  for (std::size_t i = 0; i < snapshot_.copies().size(); ++i) {
    state.tensors["snapshot." + parameters[i]->name()] = snapshot_.copies()[i];
  }
  average_.save(state, parameters);
  precision_.save(state);
  save_late(state);
}

void ModelTrainable::release_after_save() {
  if (before_save_ != Whereabouts::kAway && before_save_ != Whereabouts::kLeaving) return;
  move_state_out();
  stream_.pool()->trim();
}

void ModelTrainable::load(const State& state) {
  drop_late();
  bring_state_back();
  snapshot_.drop();
  is_rounded_ = state.integers.contains(kRoundedState) && state.integer(kRoundedState) != 0;
  const std::vector<Parameter*>& parameters = step_->parameters();
  for (Parameter* parameter : parameters)
    copy_from(parameter->home_master(), state, "model." + parameter->name(), stream_);
  const auto first_moment = state.tensors.lower_bound("optimizer.");
  const bool has_moments =
      first_moment != state.tensors.end() && first_moment->first.starts_with("optimizer.");
  Optimizer& optimizer = step_->optimizer();
  bool is_dropped = false;  // by drop_and_reinitialize, with its count of steps
  optimizer.leave_device(stream_);
  optimizer.visit_state([&](const StateLabel& label, Tensor& tensor) {
    const std::string& name = label.name;
    if (!has_moments) {
      is_dropped |= tensor.elements() > 0;
      return fill_zero(tensor, stream_);
    }
    if (!state.tensors.contains("optimizer." + name)) {
      throw DataError(concat("the checkpoint is of another optimizer: it has no optimizer.", name,
                             "; use optimizer.name, momentum and state_bits of the run's "
                             "config.json"));
    }
    copy_from(tensor, state, "optimizer." + name, stream_);
  });
  optimizer.set_steps_taken(is_dropped ? 0 : state.integer("optimizer.steps_taken"));
  if (SlowNesterov* const slow = step_->slow_momentum()) slow->set_share(state.real(kSlowShare));
  load_late(state);
  average_.load(state, parameters, stream_);
  precision_.load(state);
  load_micro_batches(state);
  step_->publish_weights();
  step_->send_weights();
  if (SpeculativeOptimizer* const speculation = step_->speculation()) {
    step_->compute_in(precision_.of(Phase::kPredict), true);
    speculation->load_late(state, step_->rates_to_come(), stream_);
  }
  if (parameters.empty() || !state.tensors.contains("snapshot." + parameters.front()->name()))
    return;
  save_snapshot();
  stream_.synchronize();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    copy_from(snapshot_.copies()[i], state, "snapshot." + parameters[i]->name(), stream_);
  }
}

}  // namespace hybrid_trainer
