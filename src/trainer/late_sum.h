#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/distributed/ordered_sum.h"

namespace hybrid_trainer {

/// A sum over all ranks that is made beside what they compute, and a few numbers that each tells the
/// others with it.
class LateSum {
 public:
  LateSum() = default;
  /// Begins the sum of `mine`, f32, which this keeps and changes; the bits do not depend on when it
  /// is waited for. `words`: this rank's, as many on each. Throws OutOfMemory.
  LateSum(Tensor mine, const std::vector<double>& words, Communicator& ranks, const Stream& stream);
  /// Blocks where it has not arrived. Throws RankLost.
  const Tensor& wait();
  /// Over all ranks; once it was waited for. Memory that computes nothing holds zeros.
  double sum_of(std::size_t word) const;

 private:
  Communicator* ranks_ = nullptr;
  const Stream* stream_ = nullptr;
  Tensor total_;
  Tensor words_;  // (ranks, words) f64
  std::shared_ptr<OrderedReduction> reduction_;
  CollectiveTicket ticket_ = 0;
};

}  // namespace hybrid_trainer
