#include "hybrid_trainer/nn/embedding.h"

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/indexing.h"

namespace hybrid_trainer {

Embedding::Embedding(std::int64_t rows, std::int64_t positions, std::int64_t width,
                     const Stream& stream, double factor)
    : factor_(static_cast<float>(factor)),
      tokens_("wte.weight", {rows, width}, Role::kEmbedding, stream) {
  if (positions > 0)
    positions_.emplace("wpe.weight", Shape{positions, width}, Role::kEmbedding, stream);
}

Tensor Embedding::forward(const Tensor& tokens, const Pass& pass, const Stream& stream) {
  Tensor y = Tensor::empty({tokens.size(0), tokens.size(1), tokens_.shape()[1]}, pass.dtype,
                           MemoryKind::kActivations, stream);
  if (!positions_ && !pass.training &&
      tokens_.storage().look_up(y.as_rows(), tokens.view({tokens.elements()}), stream)) {
    scale(y, stream);
    return y;
  }
  const bool apart = positions_ && pass.positions;  // a look-up of its own, by documents
  kernels::embedding_forward(
      y, tokens, tokens_.acquire(pass.dtype, stream),
      positions_ && !apart ? positions_->acquire(pass.dtype, stream) : Weight{}, 0, stream);
  if (apart) {
    const Tensor place = Tensor::empty_like(y, MemoryKind::kActivations, stream);
    kernels::embedding_forward(place, pass.positions, positions_->acquire(pass.dtype, stream),
                               Weight{}, 0, stream);
    kernels::add(y, y, place, stream);
  }
  scale(y, stream);
  return y;
}

void Embedding::scale(const Tensor& x, const Stream& stream) const {
  if (factor_ == 1) return;
  kernels::scale(x, x, x.dtype() == DType::kBF16 ? to_float(to_bfloat16(factor_)) : factor_,
                 stream);
}

void Embedding::backward(const Tensor& dy, const Tensor& tokens, const Pass& pass,
                         const Stream& stream) {
  GradientContribution dtokens(tokens_, stream),
      dpositions(positions_ ? *positions_ : tokens_, stream, positions_.has_value());
  if (!dtokens.wanted() && !dpositions.wanted()) return;
  scale(dy, stream);
  const bool apart = positions_ && pass.positions;
  const kernels::GradientMode mode = dpositions.next_mode();
  kernels::embedding_backward(dtokens.gradient_or_scratch(), dtokens.next_mode(),
                              positions_ && !apart ? dpositions.gradient_or_scratch() : Tensor{},
                              mode, dy, tokens, stream);
  if (!apart) return;
  kernels::embedding_backward(dpositions.gradient_or_scratch(), mode, Tensor{}, mode, dy,
                              pass.positions, stream);
}

void Embedding::visit_parameters(const ParameterVisitor& visit) {
  visit(tokens_);
  if (positions_) visit(*positions_);
}

}  // namespace hybrid_trainer
