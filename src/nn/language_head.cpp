#include "hybrid_trainer/nn/language_head.h"

#include <algorithm>

#include "hybrid_trainer/kernels/reductions.h"

namespace hybrid_trainer {

namespace {

std::int64_t chunk_rows(std::int64_t rows, std::int64_t row_bytes, const Stream& stream) {
  const std::int64_t bytes = kernels::logits_chunk_bytes(stream);
  const std::int64_t fitting = std::max<std::int64_t>(64, bytes / row_bytes / 64 * 64);
  return std::min(rows, fitting);
}

}  // namespace

/// Logits of a chunk of x's rows and, if tape.keeps(), their gradients.
class LanguageHead::Chunks {
 public:
  Chunks(LanguageHead& head, const Tensor& x, const Tensor& targets, float smoothing,
         ActivationTape& tape, const Stream& stream)
      : head_(head),
        x_(x),
        targets_(targets),
        loss_{head.vocabulary_, smoothing},
        keeps_(tape.keeps()),
        trains_(keeps_ || tape.pass().training),
        stream_(stream),
        step_(chunk_rows(x.size(0), columns() * static_cast<std::int64_t>(size_of(x.dtype())),
                         stream)),
        logits_(Tensor::empty({step_, columns()}, x.dtype(), MemoryKind::kLogits, stream)),
        capped_(head.cap_ > 0 && keeps_ ? Tensor::empty_like(logits_, MemoryKind::kLogits, stream)
                                        : Tensor{}),
        dx_(keeps_ ? Tensor::empty_like(x, MemoryKind::kActivations, stream) : Tensor{}),
        dtable_(head.table_, stream, keeps_, x.dtype()) {  // complete after its last read
    if (trains_) table_.emplace(head.table_.acquire(x.dtype(), stream));
    if (keeps_ && head.bias_.values != nullptr) dbias_.emplace(*head.bias_.values, stream);
  }

  template <class Visit>
  void each(const Visit& visit) const {
    for (std::int64_t begin = 0; begin < x_.size(0); begin += step_)
      visit(begin, std::min(x_.size(0), begin + step_));
  }
  bool is_one() const { return step_ == x_.size(0); }
  void compute_logits(std::int64_t begin, std::int64_t end) {
    const Tensor part = logits_.rows(0, end - begin);
    const Tensor rows = x_.rows(begin, end);
    const Weight held = head_.held_bias(stream_);
    const Tensor bias = as_vector(held);
    if (trains_ || !head_.table_.storage().multiply(part, rows, bias, Tensor{}, stream_)) {
      if (!table_) table_.emplace(head_.table_.acquire(x_.dtype(), stream_));
      kernels::linear_forward(part, rows, *table_, bias, Tensor{}, stream_);
    }
    if (head_.cap_ > 0) kernels::cap_forward(part, part, head_.cap_, stream_);
  }
  /// Writes the losses of the last computed rows; unless `scale` is 0, gradients replace logits.
  void compute_losses(const Tensor& losses, std::int64_t begin, std::int64_t end, float scale) {
    const Tensor part = logits_.rows(0, end - begin);
    if (capped_ && scale != 0) copy(capped_.rows(0, end - begin), part, stream_);
    kernels::smoothed_cross_entropy(losses.rows(begin, end), part, targets_.rows(begin, end), loss_,
                                    scale, stream_);
  }
  void weigh(const Tensor& weights, std::int64_t begin, std::int64_t end) {
    kernels::scale_rows(logits_.rows(0, end - begin), weights.rows(begin, end), stream_);
  }
  void backward(std::int64_t begin, std::int64_t end) {
    const Tensor part = logits_.rows(0, end - begin);
    if (capped_)
      kernels::cap_backward(part, part, capped_.rows(0, end - begin), head_.cap_, stream_);
    kernels::linear_backward_input(dx_.rows(begin, end), part, *table_, stream_);
    if (dtable_.wanted())
      kernels::linear_backward_weight(dtable_.gradient(), part, x_.rows(begin, end),
                                      dtable_.next_mode(), stream_);
    if (head_.bias_.is_trained && dbias_->wanted())
      kernels::bias_backward(as_vector(dbias_->gradient()), part, dbias_->next_mode(), stream_);
  }
  void save(ActivationTape& tape) {
    if (!keeps_) return;
    if (dbias_ && !head_.bias_.is_trained) leave_bias();
    if (head_.scale_ != 1) kernels::scale(dx_, dx_, head_.scale_, stream_);
    tape.save({ActivationRole::kLossGradient, dx_}, stream_);
  }

 private:
  /// Contributes a zero gradient to the bias, which is a weight in checkpoints.
  void leave_bias() {
    if (dbias_->wanted() && dbias_->next_mode() == kernels::GradientMode::kOverwrite)
      fill_zero(dbias_->gradient(), stream_);
  }
  std::int64_t columns() const { return head_.table_.shape()[0]; }

  LanguageHead& head_;
  const Tensor &x_, &targets_;
  const kernels::SmoothedTargets loss_;
  const bool keeps_, trains_;
  const Stream& stream_;
  const std::int64_t step_;
  const Tensor logits_, capped_, dx_;
  GradientContribution dtable_;
  std::optional<GradientContribution> dbias_{};
  std::optional<Weight> table_;  // acquired while its values are read
};

Tensor LanguageHead::loss(const Tensor& x, const Tensor& targets, double divisor,
                          float gradient_scale, ActivationTape& tape, const Stream& stream) {
  const Tensor of_rows = Tensor::empty({x.size(0)}, DType::kF32, MemoryKind::kWorkspace, stream);
  losses(of_rows, x, targets, divisor, gradient_scale, tape, stream);
  return mean(of_rows, divisor, stream);
}

Tensor LanguageHead::mean(const Tensor& losses, double divisor, const Stream& stream) {
  Tensor loss = kernels::empty_result(stream);
  kernels::quotient(loss, losses, divisor, stream);
  return loss;
}

void LanguageHead::losses(const Tensor& losses, const Tensor& x, const Tensor& targets,
                          double divisor, float gradient_scale, ActivationTape& tape,
                          const Stream& stream) {
  if (scale_ != 1) kernels::scale(x, x, scale_, stream);
  const float scale = tape.keeps() ? gradient_scale / static_cast<float>(divisor) : 0.0f;
  Chunks chunks(*this, x, targets, tape.pass().label_smoothing, tape, stream);
  chunks.each([&](std::int64_t begin, std::int64_t end) {
    chunks.compute_logits(begin, end);
    chunks.compute_losses(losses, begin, end, scale);
    if (tape.keeps()) chunks.backward(begin, end);
  });
  chunks.save(tape);
}

Tensor LanguageHead::preference(const Tensor& x, const Batch& batch, PreferenceLoss& preference,
                                float gradient_scale, ActivationTape& tape, const Stream& stream) {
  if (scale_ != 1) kernels::scale(x, x, scale_, stream);
  const double divisor = batch.loss_divisor();
  const Tensor targets = batch.at("targets").view({x.size(0)});
  const Tensor of_rows = Tensor::empty({x.size(0)}, DType::kF32, MemoryKind::kWorkspace, stream);
  Chunks chunks(*this, x, targets, 0, tape, stream);
  chunks.each([&](std::int64_t begin, std::int64_t end) {
    chunks.compute_logits(begin, end);
    chunks.compute_losses(of_rows, begin, end, 0);
  });
  const bool counts = tape.pass().counts || !tape.pass().training;
  const PreferenceLoss::PreferenceWeights weighed =
      preference.weigh(of_rows, batch, counts, stream);
  if (tape.keeps()) {
    const float scale = gradient_scale / static_cast<float>(divisor);
    chunks.each([&](std::int64_t begin, std::int64_t end) {
      if (!chunks.is_one()) chunks.compute_logits(begin, end);
      chunks.compute_losses(of_rows, begin, end, scale);
      chunks.weigh(weighed.weights, begin, end);
      chunks.backward(begin, end);
    });
  }
  chunks.save(tape);
  return mean(weighed.pair_losses, divisor, stream);
}

Tensor LanguageHead::logits(const Tensor& x, const Stream& stream) {
  if (scale_ != 1) kernels::scale(x, x, scale_, stream);
  Tensor logits =
      Tensor::empty({x.size(0), table_.shape()[0]}, x.dtype(), MemoryKind::kLogits, stream);
  const Weight held = held_bias(stream);
  const Tensor bias = as_vector(held);
  if (!table_.storage().multiply(logits, x, bias, Tensor{}, stream))
    kernels::linear_forward(logits, x, table_.acquire(x.dtype(), stream), bias, Tensor{}, stream);
  if (cap_ > 0) kernels::cap_forward(logits, logits, cap_, stream);
  return logits;
}

}  // namespace hybrid_trainer
