#include "hybrid_trainer/trainer/model_trainable.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/profile.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/initialization.h"
#include "hybrid_trainer/optim/gradient_norm.h"
#include "hybrid_trainer/optim/make_optimizer.h"
#include "src/trainer/gradient_recording.h"

namespace hybrid_trainer {
namespace {

std::vector<Parameter*> parameters_of(LossModel& model) {
  std::vector<Parameter*> parameters;
  model.visit_parameters([&](Parameter& parameter) { parameters.push_back(&parameter); });
  return parameters;
}

/// Number of inputs of the largest matrix: the width of this model's products.
std::int64_t typical_width(const std::vector<Parameter*>& parameters) {
  const Parameter* largest = nullptr;
  for (const Parameter* parameter : parameters) {
    if (!parameter->is_matrix || parameter->is_embedding) continue;
    if (largest == nullptr || parameter->value.elements() > largest->value.elements())
      largest = parameter;
  }
  return largest == nullptr ? 64 : largest->value.size(1);
}

/// Mean of losses that are (1) f64 each. Blocks.
double wait_for_mean_of(const std::vector<Tensor>& losses, const Stream& stream) {
  double sum = 0;
  for (const Tensor& loss : losses) sum += kernels::wait_for_value(loss, stream);
  return sum / static_cast<double>(losses.size());
}

void copy_from(const Tensor& to, const State& state, const std::string& name,
               const Stream& stream) {
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
                               const Stream& stream, std::shared_ptr<MemoryPool> host_pool,
                               std::function<void(const std::string&)> note)
    : model_(model),
      config_(config),
      stream_(stream),
      note_(std::move(note)),
      parameters_(parameters_of(model)),
      optimizer_(make_optimizer(config.optimizer, parameters_, stream)),
      precision_(config.mixed_precision, typical_width(parameters_), stream.device()),
      offload_(make_offload_strategy(config.predict_aware_memory, host_pool)),
      snapshot_(host_pool),
      recording_(std::make_unique<GradientRecording>()),
      host_(std::move(host_pool)) {
  if (!config_.training.cuda_graphs || stream_.native() == nullptr) return;
  step_words_ = Tensor::empty({2}, DType::kI32, MemoryKind::kData, stream_);
  host_step_words_ = Tensor::empty({2}, DType::kI32, MemoryKind::kData, host_);
}

ModelTrainable::~ModelTrainable() = default;

Pass ModelTrainable::pass(bool training, std::int64_t first_token) const {
  return {.training = training,
          .dtype = precision_.of(phase_),
          .seed = static_cast<std::uint64_t>(config_.training.seed),
          .step = static_cast<std::uint64_t>(steps_done_ - rewound_),
          .first_token = first_token,
          .step_words = records() ? step_words_ : Tensor{}};
}

void ModelTrainable::enter_phase(Phase phase) {
  phase_ = phase;
  recording_->drop();
  const auto visit_all = [this](const ParameterVisitor& visit) { visit_parameters(visit); };
  if (phase == Phase::kPredict) {
    free_gradients(visit_all);
    move_state_out();
    stream_.pool()->trim();
  } else {
    bring_state_back();
    allocate_gradients(visit_all, stream_);
  }
  refresh_working_copies();
}

std::vector<OffloadSlot> ModelTrainable::state_slots() {
  std::vector<OffloadSlot> slots;
  optimizer_->visit_state([&](const std::string& name, Tensor& tensor) {
    slots.push_back({name, &tensor});
  });
  return slots;
}

void ModelTrainable::move_state_out() {
  if (state_is_out_) return;
  restore_begun_ = false;
  const MoveOutResult result = offload_->move_out(state_slots(), stream_);
  if (!result.problem.empty()) note_("the optimizer state stays where it is: " + result.problem);
  state_is_out_ = result.problem.empty();
}

void ModelTrainable::bring_state_back() {
  if (!state_is_out_) return;
  offload_->wait_until_restored();
  if (!offload_->keeps_content()) optimizer_->set_steps_taken(0);
  state_is_out_ = false;
}

void ModelTrainable::begin_restore() {
  restore_begun_ = true;
  if (state_is_out_) offload_->begin_restore();
}

void ModelTrainable::refresh_working_copies() {
  const bool bf16 = precision_.of(phase_) == DType::kBF16;
  for (Parameter* parameter : parameters_) {
    if (!bf16 || !parameter->is_matrix) {
      parameter->working = {};
      continue;
    }
    if (!parameter->working) {
      parameter->working =
          Tensor::empty(parameter->value.shape(), DType::kBF16, MemoryKind::kParameters, stream_);
    }
    kernels::cast(parameter->working, parameter->value, stream_);
  }
}

void ModelTrainable::weights_changed() {
  if (precision_.of(phase_) == DType::kBF16) refresh_working_copies();
}

double ModelTrainable::wait_for_loss(const Batch& batch) {
  offload_->release_moved_out();
  if (phase_ == Phase::kPredict) {
    free_gradients([this](const ParameterVisitor& visit) { visit_parameters(visit); });
  }
  const std::int64_t parts = config_.gradient_accumulation.micro_batches,
                     size = batch.size() / parts;
  std::vector<Tensor> losses;
  for (std::int64_t i = 0; i < parts; ++i) {
    ForwardOnlyTape tape(pass(false));
    const Batch part = batch.examples(i * size, (i + 1) * size);
    losses.push_back(model_.forward(part, 1.0f, tape, stream_));
  }
  return wait_for_mean_of(losses, stream_);
}

GradientMeasurement ModelTrainable::wait_for_gradient(const Batch& batch) {
  const std::int64_t parts = config_.gradient_accumulation.micro_batches;
  if (batch.size() % parts != 0) {
    throw ShapeMismatch(concat("a batch of ", batch.size(), " examples does not split into ", parts,
                               " micro-batches"));
  }
  offload_->release_moved_out();
  allocate_gradients([this](const ParameterVisitor& visit) { visit_parameters(visit); }, stream_);
  upload_step();
  const auto enqueue = [this](const Batch& given, const Stream& stream) {
    return enqueue_gradient(given, stream);
  };
  const PendingGradient pending =
      records() ? recording_->run(batch, enqueue, stream_) : enqueue(batch, stream_);
  for (Parameter* parameter : pending.written) parameter->has_gradient = true;
  gradient_norm_ = std::sqrt(kernels::wait_for_value(pending.squares, stream_));
  return {.loss = wait_for_mean_of(pending.losses, stream_), .norm = gradient_norm_};
}

PendingGradient ModelTrainable::enqueue_gradient(const Batch& batch, const Stream& stream) {
  for (Parameter* parameter : parameters_) parameter->clear_gradient();
  const std::int64_t parts = config_.gradient_accumulation.micro_batches,
                     size = batch.size() / parts;
  PendingGradient pending;
  for (std::int64_t i = 0; i < parts; ++i) {
    const Batch part = batch.examples(i * size, (i + 1) * size);
    PlainTape tape(pass(true, i * part.tokens()));
    {
      const StepPartTimer timer(stream, StepPart::kForward);
      pending.losses.push_back(
          model_.forward(part, 1.0f / static_cast<float>(parts), tape, stream));
    }
    const StepPartTimer timer(stream, StepPart::kBackward);
    model_.backward(part, tape, stream);
  }
  const StepPartTimer timer(stream, StepPart::kUpdate);
  pending.squares = gradient_square_sum(parameters_, stream);
  std::copy_if(parameters_.begin(), parameters_.end(), std::back_inserter(pending.written),
               [](const Parameter* parameter) { return parameter->has_gradient; });
  return pending;
}

/// Recordings hold the memory of a backward pass, so there is none in Predict, whose few gradients
/// are those of micro-corrections; nor while a profile times each kernel.
bool ModelTrainable::records() const {
  return config_.training.cuda_graphs && stream_.native() != nullptr &&
         stream_.profile() == nullptr && phase_ != Phase::kPredict;
}

/// Uploads the step. The copy is done before the next one: every step blocks.
void ModelTrainable::upload_step() {
  if (!records()) return;
  const std::uint64_t step = pass(true).step;
  host_step_words_.data<std::int32_t>()[0] = static_cast<std::int32_t>(step);
  host_step_words_.data<std::int32_t>()[1] = static_cast<std::int32_t>(step >> 32);
  copy(step_words_, host_step_words_, stream_);
}

void ModelTrainable::apply_gradient() {
  const StepPartTimer timer(stream_, StepPart::kUpdate);
  const float scale = clip_scale(gradient_norm_, config_.optimizer.clip_norm);
  optimizer_->step(static_cast<float>(learning_rate()), scale, stream_);
}

std::vector<WeightView> ModelTrainable::weights() {
  std::vector<WeightView> views;
  views.reserve(parameters_.size());
  for (Parameter* parameter : parameters_)
    views.push_back({parameter->name, parameter->value, parameter->gradient});
  return views;
}

void ModelTrainable::write_momentum_directions(const std::vector<Tensor>& directions) {
  optimizer_->write_momentum_directions(directions, static_cast<float>(learning_rate()), stream_);
}

double ModelTrainable::learning_rate() const {
  return hybrid_trainer::learning_rate(config_.schedule, config_.optimizer.learning_rate,
                                       steps_done_ - rewound_, config_.training.steps);
}

void ModelTrainable::save_snapshot() {
  std::vector<Tensor> values;
  for (Parameter* parameter : parameters_) values.push_back(parameter->value);
  snapshot_.take(std::move(values), stream_);
}

void ModelTrainable::save(State& state) {
  stream_.synchronize();
  if (offload_->keeps_content()) bring_state_back();
  for (Parameter* parameter : parameters_)
    state.tensors["model." + parameter->name] = parameter->value;
  optimizer_->visit_state([&](const std::string& name, Tensor& tensor) {
    if (tensor) state.tensors["optimizer." + name] = tensor;
  });
  state.integers["optimizer.steps_taken"] = optimizer_->steps_taken();
  for (std::size_t i = 0; i < snapshot_.copies().size(); ++i) {
    state.tensors["snapshot." + parameters_[i]->name] = snapshot_.copies()[i];
  }
  precision_.save(state);
}

void ModelTrainable::release_after_save() {
  if (phase_ != Phase::kPredict || restore_begun_) return;
  move_state_out();
  stream_.pool()->trim();
}

void ModelTrainable::load(const State& state) {
  bring_state_back();
  for (Parameter* parameter : parameters_)
    copy_from(parameter->value, state, "model." + parameter->name, stream_);
  const bool has_moments = state.tensors.lower_bound("optimizer.") != state.tensors.end() &&
                           state.tensors.lower_bound("optimizer.")->first.starts_with("optimizer.");
  optimizer_->visit_state([&](const std::string& name, Tensor& tensor) {
    if (!has_moments) return;
    if (!state.tensors.contains("optimizer." + name)) {
      throw DataError(concat("the checkpoint is of another optimizer: it has no optimizer.", name,
                             "; use optimizer.name, momentum and state_bits of the run's "
                             "config.json"));
    }
    copy_from(tensor, state, "optimizer." + name, stream_);
  });
  optimizer_->set_steps_taken(state.integer("optimizer.steps_taken"));
  precision_.load(state);
  if (!state.tensors.contains("snapshot." + parameters_.front()->name)) return;
  save_snapshot();
  stream_.synchronize();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    copy_from(snapshot_.copies()[i], state, "snapshot." + parameters_[i]->name, stream_);
  }
}

}  // namespace hybrid_trainer
