#include "hybrid_trainer/nn/embedding.h"

#include "hybrid_trainer/kernels/indexing.h"

namespace hybrid_trainer {

Embedding::Embedding(std::int64_t rows, std::int64_t context, std::int64_t width,
                     const Stream& stream)
    : tokens_("wte.weight", {rows, width}, Role::kEmbedding, stream),
      positions_("wpe.weight", {context, width}, Role::kEmbedding, stream) {}

Tensor Embedding::forward(const Tensor& tokens, std::int64_t first_position, const Pass& pass,
                          const Stream& stream) {
  Tensor y = Tensor::empty({tokens.size(0), tokens.size(1), tokens_.shape()[1]}, pass.dtype,
                           MemoryKind::kActivations, stream);
  kernels::embedding_forward(y, tokens, tokens_.acquire(pass.dtype, stream),
                             positions_.acquire(pass.dtype, stream), first_position, stream);
  return y;
}

void Embedding::backward(const Tensor& dy, const Tensor& tokens, const Stream& stream) {
  GradientContribution dtokens(tokens_, stream), dpositions(positions_, stream);
  if (!dtokens.wanted() && !dpositions.wanted()) return;
  kernels::embedding_backward(dtokens.gradient_or_scratch(), dtokens.next_mode(),
                              dpositions.gradient_or_scratch(), dpositions.next_mode(), dy, tokens,
                              stream);
}

void Embedding::visit_parameters(const ParameterVisitor& visit) {
  visit(tokens_);
  visit(positions_);
}

}  // namespace hybrid_trainer
