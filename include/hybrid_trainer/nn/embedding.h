#pragma once

#include <optional>

#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Sum of token and position embedding: tables "wte.weight" (V, C) and "wpe.weight" (max T, C), which
/// a model whose blocks know positions goes without.
class Embedding {
 public:
  /// `positions`: max T; 0 for none. `factor`: of the sum, as its dtype holds it.
  Embedding(std::int64_t rows, std::int64_t positions, std::int64_t width, const Stream& stream,
            double factor = 1);
  /// tokens: (B, T) i32 at the pass's positions, else from 0 on; the result is (B, T, C) in the pass's
  /// dtype.
  Tensor forward(const Tensor& tokens, const Pass& pass, const Stream& stream);
  /// Overwrites dy where there is a factor.
  void backward(const Tensor& dy, const Tensor& tokens, const Pass& pass, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit);
  Parameter& tokens() { return tokens_; }
  bool has_positions() const { return positions_.has_value(); }
  Parameter& positions() { return *positions_; }

 private:
  void scale(const Tensor& x, const Stream& stream) const;
  float factor_;
  Parameter tokens_;
  std::optional<Parameter> positions_;
};

}  // namespace hybrid_trainer
