#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/distributed/ordered_sum.h"
#include "src/sharding/low_bit_sum.h"

namespace hybrid_trainer {

/// A sum over all ranks that is made beside what they compute, and a few numbers that each tells the
/// others with it.
class LateSum {
 public:
  LateSum() = default;
  /// Begins the sum of `mine`, f32, which this keeps and changes; the bits do not depend on when it
  /// is waited for. `words`: this rank's, as many on each, or none. On CUDA it blocks until the stream's work
  /// so far is done, which it does not do to what is under way. Throws OutOfMemory.
  LateSum(const Tensor& mine, const std::vector<double>& words, Communicator& ranks,
          const Stream& stream);
  /// The same, of which each rank keeps its shards alone: of others' there is what `mine` was.
  LateSum(const Tensor& mine, const std::vector<SharedElements>& shared,
          const std::vector<double>& words, Communicator& ranks, const Stream& stream);
  /// The same as in the first form, of as many elements as `errors` are, as a LowBitSum.
  LateSum(const Tensor& mine, const LowBitErrors& errors, const std::vector<double>& words,
          Communicator& ranks, const Stream& stream);
  /// The sum, which this has no more. Blocks where it has not arrived. Throws RankLost.
  Tensor wait();
  /// Over all ranks; once it was waited for. Of a simulated device: 0.
  double sum_of(std::size_t word) const;
  /// Of the sum's elements, where each rank keeps its shards.
  double sum_of_squares() const;

 private:
  /// Of some elements: the sum, which comes to lie in this rank's shard of them.
  struct Piece {
    std::shared_ptr<OrderedReduction> reduction;
    Tensor own;
  };
  void take_words(const std::vector<double>& words);
  void take_pieces(const std::vector<SharedElements>& shared);
  Tensor words_of_rank() const;

  Communicator* ranks_ = nullptr;
  const Stream* stream_ = nullptr;
  Tensor total_;
  Tensor words_;  // (ranks, words and the sum of squares) f64; in host memory in the end
  std::vector<Piece> pieces_;
  Tensor square_sums_;                   // of chunks of them, where the sum of squares is wanted
  std::shared_ptr<LowBitSum> low_bits_;  // in place of pieces
  CollectiveTicket ticket_ = 0;
};

}  // namespace hybrid_trainer
