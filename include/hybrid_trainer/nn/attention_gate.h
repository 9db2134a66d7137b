#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// The gates of attention: σ(gate) multiplies each number of what the heads attended to. A row of the
/// first product has the queries' columns, as many gates, then keys and values.
class AttentionGate {
 public:
  /// `columns`: of the queries of a token.
  explicit AttentionGate(std::int64_t columns) : columns_(columns) {}
  /// Queries, keys and values of a product, (B, T, any).
  Tensor without_gates(const Tensor& product, const Stream& stream) const;
  /// y, (B, T, columns), times the gates.
  Tensor apply(const Tensor& y, const Tensor& product, const Stream& stream) const;
  /// dy, the gradient of apply's result, becomes that of y; writes dproduct's gates.
  void backward(const Tensor& dproduct, const Tensor& dy, const Tensor& y, const Tensor& product,
                const Stream& stream) const;
  /// The other columns of dproduct.
  void put_without_gates(const Tensor& dproduct, const Tensor& dqkv, const Stream& stream) const;

 private:
  std::int64_t columns_;
};

}  // namespace hybrid_trainer
