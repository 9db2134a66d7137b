#include "src/step/micro_batch_pass.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/profile.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/memory/stored_tape.h"
#include "hybrid_trainer/nn/recomputation.h"
#include "hybrid_trainer/nn/routed_experts.h"

namespace hybrid_trainer {
namespace {

constexpr const char* kSeesAll =
    "the model has layers that do not hand on what they know of earlier tokens: attention without "
    "a window or behind a convolution, angles that depend on the length, tables of positions, or "
    "T + U·Vᵀ; leave it out, give attention a window (model.window), or take a model of Mamba-2 "
    "or Gated DeltaNet";
constexpr std::int64_t kLeastSegment = 64;

/// Throws ConfigError where the key, set to `got`, wants segments that the model does not have.
void check_goes_in_segments(const LossModel& model, const HybridTrainerConfig& config,
                            const std::string& got) {
  if (model.goes_in_segments()) return;
  throw ConfigError(
      {concat(got, ", and ",
              config.model.two_way
                  ? "an encoder sees later tokens too, so its sequences go whole; leave it out"
                  : kSeesAll)});
}

void check_segment(const LossModel& model, const HybridTrainerConfig& config) {
  const std::int64_t wanted = config.memory.segment_length;
  if (wanted == 0) return;
  if (wanted < kLeastSegment)
    throw ConfigError(
        {concat("memory.segment_length: got ", wanted, ", want 0 or at least ", kLeastSegment)});
  check_goes_in_segments(model, config, concat("memory.segment_length: got ", wanted));
}

}  // namespace

MicroBatchPass::MicroBatchPass(LossModel& model, const HybridTrainerConfig& config,
                               const LearningRates& rates, const StepScales& scales,
                               MemoryPlaces& places, const Stream& stream)
    : model_(model),
      seed_(static_cast<std::uint64_t>(config.training.seed)),
      label_smoothing_(static_cast<float>(config.training.label_smoothing)),
      memory_(config.memory),
      rates_(rates),
      scales_(scales),
      places_(places),
      stream_(stream),
      states_(config.data.carry_state ? std::make_unique<RowStates>() : nullptr) {
  check_segment(model, config);
  if (config.data.carry_state) check_goes_in_segments(model, config, "data.carry_state: got true");
  if (!config.training.cuda_graphs || stream_.native() == nullptr) return;
  step_words_ = Tensor::empty({2}, DType::kI32, MemoryKind::kData, stream_);
  host_step_words_ = Tensor::empty({2}, DType::kI32, MemoryKind::kData, places.host());
}

void MicroBatchPass::compute_in(DType dtype, bool may_record) {
  dtype_ = dtype;
  may_record_ = may_record;
  model_.visit_parameters([&](Parameter& parameter) { parameter.compute_in(dtype_, stream_); });
}

bool MicroBatchPass::records() const {
  return may_record_ && step_words_ && stream_.profile() == nullptr;
}

void MicroBatchPass::upload_step_number() {
  const auto step = static_cast<std::uint64_t>(rates_.steps_done());
  host_step_words_.data<std::int32_t>()[0] = static_cast<std::int32_t>(step);
  host_step_words_.data<std::int32_t>()[1] = static_cast<std::int32_t>(step >> 32);
  copy(step_words_, host_step_words_, stream_);
}

std::int64_t MicroBatchPass::contributions(const Batch& part) const {
  return model_.contributions(
      part, model_.segment_for(memory_.segment_length, part.tokens_per_example()));
}

Pass MicroBatchPass::pass(bool training, std::int64_t first_token, const Batch& part) const {
  return {.training = training,
          .dtype = dtype_,
          .products = scales_.rounding(),
          .seed = seed_,
          .step = static_cast<std::uint64_t>(rates_.steps_done()),
          .recompute = memory_.recompute,
          .first_token = first_token,
          .step_words = records() ? step_words_ : Tensor{},
          .segment = model_.segment_for(memory_.segment_length, part.tokens_per_example()),
          .kept_segments = memory_.kept_segments,
          .label_smoothing = label_smoothing_};
}

void MicroBatchPass::begin_gradient() const {
  scales_.begin_gradient();
  if (PreferenceLoss* const preference = model_.preference()) preference->clear(stream_);
  model_.visit_routings([&](RoutedExperts& experts) {
    if (experts.count().sums) fill_zero(experts.count().sums, stream_);
  });
}

Tensor MicroBatchPass::enqueue(const Batch& part, const MicroBatch& place, const Stream& stream,
                               ImmediateUpdates* updates) const {
  Pass pass = this->pass(true, place.index * part.tokens(), part);
  pass.counts = place.is_of_step;
  pass.loss_may_wait = updates == nullptr;
  pass.states = states_.get();
  if (states_) states_->set_sequences(place.count * part.size());
  const auto tape = make_tape(
      pass,
      {places_.at(memory_.activations), memory_.activation_bits, memory_.activations == "file"},
      stream_);
  Tensor loss;
  {
    const StepPartTimer timer(stream, StepPart::kForward);
    const auto scale = static_cast<float>(scales_.loss_scale());
    loss = model_.forward(part, scale / static_cast<float>(place.count), *tape, stream);
  }
  if (updates != nullptr) updates->observe_loss(kernels::wait_for_value(loss, stream));
  const StepPartTimer timer(stream, StepPart::kBackward);
  model_.backward(part, *tape, stream);
  return loss;
}

Tensor MicroBatchPass::enqueue_forward(const Batch& part) const {
  Pass pass = this->pass(false, 0, part);
  pass.counts = true;
  ForwardOnlyTape tape(pass);
  return model_.forward(part, 1.0f, tape, stream_);
}

double MicroBatchPass::wait_for_mean_of(const std::vector<Tensor>& losses,
                                        double last_share) const {
  double sum = 0;
  for (const Tensor& loss : losses)
    sum += kernels::wait_for_value(loss, stream_) * (&loss == &losses.back() ? last_share : 1);
  return sum / (static_cast<double>(losses.size()) - 1 + last_share);
}

}  // namespace hybrid_trainer
