#include "hybrid_trainer/nn/embedding.h"

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/indexing.h"

namespace hybrid_trainer {

namespace {

Tensor types_of(const Tensor& tokens, const Pass& pass, const Stream& stream) {
  if (pass.types) return pass.types;
  return Tensor::zeros(tokens.shape(), DType::kI32, MemoryKind::kWorkspace, stream);
}

}  // namespace

Embedding::Embedding(const Spec& spec, const Stream& stream)
    : factor_(static_cast<float>(spec.factor)),
      scales_only_tokens_(spec.scales_only_tokens),
      owns_tokens_(spec.tokens == nullptr),
      first_position_(spec.first_position),
      tokens_(spec.tokens ? spec.tokens
                          : std::make_shared<Parameter>("wte.weight", Shape{spec.rows, spec.width},
                                                        Role::kEmbedding, stream)) {
  if (!owns_tokens_) tokens_->add_contributor();
  if (spec.positions > 0)
    positions_.emplace(spec.positions_name, Shape{first_position_ + spec.positions, spec.width},
                       Role::kEmbedding, stream);
  if (spec.types > 0)
    types_.emplace("wtype.weight", Shape{spec.types, spec.width}, Role::kEmbedding, stream);
}

Tensor Embedding::forward(const Tensor& tokens, const Pass& pass, const Stream& stream) {
  Tensor y = Tensor::empty({tokens.size(0), tokens.size(1), tokens_->shape()[1]}, pass.dtype,
                           MemoryKind::kActivations, stream);
  if (!positions_ && !types_ && !pass.training &&
      tokens_->storage().look_up(y.as_rows(), tokens.view({tokens.elements()}), stream)) {
    scale(y, stream);
    return y;
  }
  const bool separate = adds_positions_separately(pass);  // a separate look-up, by document
  kernels::embedding_forward(
      y, tokens, tokens_->acquire(pass.dtype, stream),
      positions_ && !separate ? positions_->acquire(pass.dtype, stream) : Weight{}, first_position_,
      stream);
  if (scales_only_tokens_) scale(y, stream);
  if (separate) add_positions(y, pass, stream);
  if (types_) add_types(y, tokens, pass, stream);
  if (!scales_only_tokens_) scale(y, stream);
  return y;
}

void Embedding::add_positions(const Tensor& y, const Pass& pass, const Stream& stream) const {
  const Weight table = positions_->acquire(pass.dtype, stream);
  const Tensor rows = rows_of_positions(table);
  if (pass.positions) {
    const Tensor place = Tensor::empty_like(y, MemoryKind::kActivations, stream);
    kernels::embedding_forward(place, pass.positions, rows, Weight{}, 0, stream);
    kernels::add(y, y, place, stream);
    return;
  }
  for (std::int64_t i = 0; i < y.size(0); ++i) {
    const Tensor one = y.rows(i, i + 1).as_rows();
    kernels::add(one, one, rows.rows(0, one.size(0)), stream);
  }
}

void Embedding::add_types(const Tensor& y, const Tensor& tokens, const Pass& pass,
                          const Stream& stream) const {
  const Tensor of_types = Tensor::empty_like(y, MemoryKind::kActivations, stream);
  kernels::embedding_forward(of_types, types_of(tokens, pass, stream),
                             types_->acquire(pass.dtype, stream), Weight{}, 0, stream);
  kernels::add(y, y, of_types, stream);
}

void Embedding::scale(const Tensor& x, const Stream& stream) const {
  if (factor_ == 1) return;
  kernels::scale(x, x, x.dtype() == DType::kBF16 ? to_float(to_bfloat16(factor_)) : factor_,
                 stream);
}

void Embedding::backward(const Tensor& dy, const Tensor& tokens, const Pass& pass,
                         const Stream& stream) {
  GradientContribution dtokens(*tokens_, stream),
      dpositions(positions_ ? *positions_ : *tokens_, stream, positions_.has_value()),
      dtypes(types_ ? *types_ : *tokens_, stream, types_.has_value());
  if (!dtokens.wanted() && !dpositions.wanted() && !dtypes.wanted()) return;
  if (!scales_only_tokens_) scale(dy, stream);
  if (dtypes.wanted()) {
    const kernels::GradientMode of_types = dtypes.next_mode();
    kernels::embedding_backward(dtypes.gradient(), of_types, Tensor{}, of_types, dy,
                                types_of(tokens, pass, stream), stream);
  }
  const bool separate = adds_positions_separately(pass);
  const kernels::GradientMode mode = dpositions.next_mode();
  const Tensor of_positions = positions_ ? dpositions.gradient_or_scratch() : Tensor{};
  if (positions_ && first_position_ > 0 && mode == kernels::GradientMode::kOverwrite)
    fill_zero(of_positions.rows(0, first_position_), stream);
  const Tensor read = positions_ ? rows_of_positions(of_positions) : Tensor{};
  if (separate && pass.positions) {
    kernels::embedding_backward(read, mode, Tensor{}, mode, dy, pass.positions, stream);
  } else if (separate) {  // all sequences begin at position 0
    const Tensor unread =
        Tensor::empty(tokens_->shape(), DType::kF32, MemoryKind::kWorkspace, stream);
    kernels::embedding_backward(unread, kernels::GradientMode::kOverwrite, read, mode, dy, tokens,
                                stream);
  }
  if (scales_only_tokens_) scale(dy, stream);
  kernels::embedding_backward(dtokens.gradient_or_scratch(), dtokens.next_mode(),
                              separate ? Tensor{} : read, mode, dy, tokens, stream);
}

}  // namespace hybrid_trainer
