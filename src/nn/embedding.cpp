#include "hybrid_trainer/nn/embedding.h"

#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/nn/initialization.h"

namespace hybrid_trainer {

Embedding::Embedding(std::int64_t rows, std::int64_t context, std::int64_t width,
                     const Stream& stream)
    : tokens_(make_parameter("wte.weight", {rows, width}, stream)),
      positions_(make_parameter("wpe.weight", {context, width}, stream)) {
  for (Parameter* table : {&tokens_, &positions_}) {
    table->is_matrix = true;
    table->is_embedding = true;
  }
}

Tensor Embedding::forward(const Tensor& tokens, std::int64_t first_position, const Pass& pass,
                          const Stream& stream) {
  Tensor y = Tensor::empty({tokens.size(0), tokens.size(1), tokens_.value.size(1)}, pass.dtype,
                           MemoryKind::kActivations, stream);
  kernels::embedding_forward(y, tokens, tokens_.for_compute(), positions_.for_compute(),
                             first_position, stream);
  return y;
}

void Embedding::backward(const Tensor& dy, const Tensor& tokens, const Stream& stream) {
  kernels::embedding_backward(tokens_.gradient, tokens_.take_gradient_mode(), positions_.gradient,
                              positions_.take_gradient_mode(), dy, tokens, stream);
}

void Embedding::visit_parameters(const ParameterVisitor& visit) {
  visit(tokens_);
  visit(positions_);
}

}  // namespace hybrid_trainer
