#pragma once

#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Sum of token and position embedding: tables "wte.weight" (V, C) and "wpe.weight" (max T, C).
class Embedding {
 public:
  Embedding(std::int64_t rows, std::int64_t context, std::int64_t width, const Stream& stream);
  /// tokens: (B, T) i32 at positions first_position…; the result is (B, T, C) in the pass's dtype.
  Tensor forward(const Tensor& tokens, std::int64_t first_position, const Pass& pass,
                 const Stream& stream);
  void backward(const Tensor& dy, const Tensor& tokens, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit);
  Parameter& tokens() { return tokens_; }
  Parameter& positions() { return positions_; }

 private:
  Parameter tokens_, positions_;
};

}  // namespace hybrid_trainer
