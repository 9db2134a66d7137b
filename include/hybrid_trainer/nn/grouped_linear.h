#pragma once

#include <functional>
#include <vector>

#include "hybrid_trainer/kernels/grouped_product.h"
#include "hybrid_trainer/nn/dropout.h"
#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/product_rounding.h"

namespace hybrid_trainer {

/// Rows that lie together by group.
struct RowsByGroup {
  Tensor offsets;    // see kernels::GroupedRows
  TokenRows rows{};  // tokens that the rows come from, for dropout
};

/// Linear maps of one shape, each for the rows of its own group: y = x·w_gᵀ + b_g, and what adapters
/// add. Weights that stay on the device are multiplied together; others come one at a time, in the
/// order of the groups, whatever rows they have, so that all ranks acquire and complete the same.
class GroupedLinear {
 public:
  explicit GroupedLinear(std::vector<Linear> linears) : linears_(std::move(linears)) {}
  /// Which maps a product needs.
  enum class Wanted {
    kAll,
    kWithRows,  // only those of groups with rows, for which it waits for the offsets
  };
  /// x: (R, I). Returns (R, O).
  Tensor forward(const Tensor& x, const RowsByGroup& groups, Wanted wanted, const Pass& pass,
                 const Stream& stream);
  /// The gradient of x. dy: (R, O).
  Tensor backward_input(const Tensor& dy, const RowsByGroup& groups, const Pass& pass,
                        const Stream& stream);
  /// Contributes those of weights, biases and adapters. A row's share of a bias's gradient is
  /// multiplied by its factor; factors: (R) f32 or undefined. A group without rows contributes zeros.
  void contribute(const Tensor& dy, const Tensor& x, const Tensor& factors,
                  const RowsByGroup& groups, const Pass& pass, const Stream& stream);
  /// Whether any gradient but that of x is wanted.
  bool learns();
  std::vector<Linear>& linears() { return linears_; }
  const Shape& shape() const { return linears_.front().weight().shape(); }  // of a weight
  /// Of a row.
  TokenFlops flops() const { return linears_.front().flops(); }

 private:
  /// Consecutive groups.
  struct Run {
    std::size_t first, count;
  };
  template <class Together>
  std::vector<Run> runs(const Together& together) const;
  template <class Visit>
  void for_weights(DType dtype, const Pass& pass, const Stream& stream, const Visit& visit);
  void contribute_weights(const Tensor& dy, const Tensor& x, const Tensor& offsets,
                          const Pass& pass, const Stream& stream);
  Tensor operand(const Tensor& rows, Operand which, const Pass& pass, const Stream& stream) const;
  void contribute_biases(const Tensor& dy, const Tensor& factors, const Tensor& offsets,
                         const Stream& stream);
  void forward_with_rows(const Tensor& y, const Tensor& x, const Tensor& offsets,
                         const Stream& stream);
  std::vector<Linear> linears_;
};

}  // namespace hybrid_trainer
