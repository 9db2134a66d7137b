#pragma once

#include "hybrid_trainer/nn/linear.h"

namespace hybrid_trainer {

/// A router's matrix and bias as they were at a time; undefined: there are none.
struct RouterCopy {
  Tensor weight{}, bias{};
  /// Of the router as it is now, in the dtype of products, so that it gives the same logits as long as
  /// the router does not change. Of none where the router does not learn, or an adapter does in its place.
  static RouterCopy of(Linear& router, const Stream& stream);
  /// x: (N, C) of the weight's dtype.
  Tensor logits(const Tensor& x, const Stream& stream) const;
};

}  // namespace hybrid_trainer
