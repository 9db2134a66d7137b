#pragma once

#include <vector>

#include "hybrid_trainer/nn/grouped_linear.h"

namespace hybrid_trainer {

/// The adapters of several linear maps, each for the rows of its own group. Of any consecutive maps that
/// have adapters all work is done together. They have one rank and one dropout, and no magnitudes.
class GroupedAdapters {
 public:
  GroupedAdapters(std::vector<Linear>& linears, const RowsByGroup& groups, const Pass& pass,
                  const Stream& stream)
      : linears_(linears), groups_(groups), pass_(pass), stream_(stream) {}
  /// y (R, O) += what they add for x (R, I).
  void add_to(const Tensor& y, const Tensor& x) const;
  /// dx (R, I) += what comes through them of dy (R, O).
  void add_input_gradient(const Tensor& dx, const Tensor& dy) const;
  void contribute(const Tensor& dy, const Tensor& x) const;

 private:
  /// Consecutive maps with adapters.
  struct Run {
    std::size_t first, count;
  };
  template <class Visit>
  void for_runs(const Visit& visit) const;
  LowRankAdapter& adapter(std::size_t i) const { return *linears_[i].adapter(); }
  kernels::GroupedRows rows_of(const Run& run) const {
    return {groups_.offsets, static_cast<std::int64_t>(run.first)};
  }
  std::vector<Tensor> wide_b(const Run& run, DType dtype) const;
  Tensor reduced(const Run& run, const Tensor& x) const;
  Tensor gradient_of_reduced(const Run& run, const Tensor& dy) const;
  std::vector<Linear>& linears_;
  const RowsByGroup& groups_;
  const Pass& pass_;
  const Stream& stream_;
};

}  // namespace hybrid_trainer
