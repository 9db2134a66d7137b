#include "hybrid_trainer/nn/transformer_block.h"

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/dropout.h"

namespace hybrid_trainer {
namespace {

std::string block_name(int index, const char* part) {
  return "h." + std::to_string(index) + "." + part;
}

}  // namespace

TransformerBlock::TransformerBlock(int index, const BlockShape& shape, const Stream& stream)
    : index_(index),
      shape_(shape),
      norm_1_(block_name(index, "ln_1"), shape.width, stream),
      attention_(block_name(index, "attn"), shape.width, shape.heads, stream),
      norm_2_(block_name(index, "ln_2"), shape.width, stream),
      feed_forward_(block_name(index, "mlp"), shape.width, stream) {}

/// Without dropout the branch's last product adds the residual itself; with it, dropout comes
/// first.
template <class Branch>
Tensor TransformerBlock::forward_branch(Branch& branch, LayerNorm& norm, const Tensor& x,
                                        std::uint64_t site, ActivationTape& tape,
                                        const Stream& stream) {
  const Tensor normal = norm.forward(x, tape, stream);
  if (shape_.dropout == 0 || !tape.pass().training) return branch.forward(normal, x, tape, stream);
  const Tensor y = branch.forward(normal, Tensor{}, tape, stream);
  apply_dropout(y, shape_.dropout, tape.pass(), site, stream);
  kernels::add(y, y, x, stream);
  return y;
}

template <class Branch>
void TransformerBlock::backward_branch(Branch& branch, LayerNorm& norm, const Tensor& dx,
                                       std::uint64_t site, ActivationTape& tape,
                                       const Stream& stream) {
  Tensor dbranch = dx;
  if (shape_.dropout != 0 && tape.pass().training) {
    dbranch = Tensor::empty_like(dx, MemoryKind::kActivations, stream);
    copy(dbranch, dx, stream);
    apply_dropout(dbranch, shape_.dropout, tape.pass(), site, stream);
  }
  const Tensor dnormal = branch.backward(dbranch, tape, stream);
  norm.backward_onto(dx, dnormal, tape, stream);
}

Tensor TransformerBlock::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  const auto site = static_cast<std::uint64_t>(2 * index_ + 1);  // 0 is the embedding's
  const Tensor middle = forward_branch(attention_, norm_1_, x, site, tape, stream);
  return forward_branch(feed_forward_, norm_2_, middle, site + 1, tape, stream);
}

Tensor TransformerBlock::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const auto site = static_cast<std::uint64_t>(2 * index_ + 1);
  backward_branch(feed_forward_, norm_2_, dy, site + 1, tape, stream);
  backward_branch(attention_, norm_1_, dy, site, tape, stream);
  return dy;
}

Tensor TransformerBlock::forward_cached(const Tensor& x, std::int64_t position,
                                        const KeyValueCache& cache, const Pass& pass,
                                        const Stream& stream) {
  ForwardOnlyTape tape(pass);
  const Tensor middle =
      attention_.forward_cached(norm_1_.forward(x, tape, stream), x, position, cache, pass, stream);
  return feed_forward_.forward(norm_2_.forward(middle, tape, stream), middle, tape, stream);
}

void TransformerBlock::visit_parameters(const ParameterVisitor& visit) {
  norm_1_.visit_parameters(visit);
  attention_.visit_parameters(visit);
  norm_2_.visit_parameters(visit);
  feed_forward_.visit_parameters(visit);
}

}  // namespace hybrid_trainer
