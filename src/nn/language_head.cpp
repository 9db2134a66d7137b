#include "hybrid_trainer/nn/language_head.h"

#include <algorithm>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/loss.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "hybrid_trainer/kernels/reductions.h"

namespace hybrid_trainer {
namespace {

std::int64_t chunk_rows(std::int64_t rows, std::int64_t row_bytes, const Stream& stream) {
  const std::int64_t bytes = kernels::logits_chunk_bytes(stream);
  const std::int64_t fitting = std::max<std::int64_t>(64, bytes / row_bytes / 64 * 64);
  return std::min(rows, fitting);
}

}  // namespace

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
  const std::int64_t rows = x.size(0), columns = table_.shape()[0];
  if (scale_ != 1) kernels::scale(x, x, scale_, stream);
  const std::int64_t step =
      chunk_rows(rows, columns * static_cast<std::int64_t>(size_of(x.dtype())), stream);
  const Tensor logits = Tensor::empty({step, columns}, x.dtype(), MemoryKind::kLogits, stream);
  const Tensor capped =
      cap_ > 0 && tape.keeps() ? Tensor::empty_like(logits, MemoryKind::kLogits, stream) : Tensor{};
  const Tensor dx =
      tape.keeps() ? Tensor::empty_like(x, MemoryKind::kActivations, stream) : Tensor{};
  const float scale = tape.keeps() ? gradient_scale / static_cast<float>(divisor) : 0.0f;
  GradientContribution dtable(table_, stream, tape.keeps(),
                              x.dtype());  // complete when nobody reads it
  const Weight table = table_.acquire(x.dtype(), stream);
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    const std::int64_t end = std::min(rows, begin + step);
    const Tensor part = logits.rows(0, end - begin), x_part = x.rows(begin, end);
    kernels::linear_forward(part, x_part, table, Tensor{}, Tensor{}, stream);
    if (cap_ > 0) {
      kernels::cap_forward(part, part, cap_, stream);
      if (capped) copy(capped.rows(0, end - begin), part, stream);
    }
    kernels::softmax_cross_entropy(losses.rows(begin, end), part, targets.rows(begin, end),
                                   vocabulary_, scale, stream);
    if (!tape.keeps()) continue;
    if (capped) kernels::cap_backward(part, part, capped.rows(0, end - begin), cap_, stream);
    kernels::linear_backward_input(dx.rows(begin, end), part, table, stream);
    if (dtable.wanted()) {
      kernels::linear_backward_weight(dtable.gradient(), part, x_part, dtable.next_mode(), stream);
    }
  }
  if (tape.keeps() && scale_ != 1) kernels::scale(dx, dx, scale_, stream);
  if (tape.keeps()) tape.save({ActivationRole::kLossGradient, dx}, stream);
}

Tensor LanguageHead::logits(const Tensor& x, const Stream& stream) {
  if (scale_ != 1) kernels::scale(x, x, scale_, stream);
  Tensor logits =
      Tensor::empty({x.size(0), table_.shape()[0]}, x.dtype(), MemoryKind::kLogits, stream);
  kernels::linear_forward(logits, x, table_.acquire(x.dtype(), stream), Tensor{}, Tensor{}, stream);
  if (cap_ > 0) kernels::cap_forward(logits, logits, cap_, stream);
  return logits;
}

}  // namespace hybrid_trainer
