#pragma once

#include <memory>
#include <vector>

#include "src/distributed/communicator.h"
#include "src/distributed/ordered_sum.h"

namespace hybrid_trainer {

/// Numbers in 8 or 4 bits each, in blocks that have an f32 scale each: the dynamic tree of
/// kernels/quantized/quantization.h, or NormalFloat 4.
class LowBitNumbers {
 public:
  static std::int64_t block(std::int64_t bits);
  /// `elements`: whole blocks. Throws OutOfMemory.
  LowBitNumbers(std::int64_t elements, std::int64_t bits, const Stream& stream);
  /// Rounds f32 values to them, as many; and gives them back.
  void write(const Tensor& values, const Stream& stream) const;
  void read(const Tensor& values, const Stream& stream) const;
  /// Elements [first, last), whole blocks of them, sharing memory.
  LowBitNumbers part(std::int64_t first, std::int64_t last) const;
  const Tensor& codes() const { return codes_; }    // u8
  const Tensor& scales() const { return scales_; }  // f32

 private:
  LowBitNumbers(std::int64_t bits, Tensor codes, Tensor scales)
      : bits_(bits), codes_(std::move(codes)), scales_(std::move(scales)) {}
  std::int64_t bits_;
  Tensor codes_, scales_;
};

/// How far what was sent lies above what was meant, so far: the next sum makes up for it. f32, of
/// whole blocks in each rank's shard.
struct LowBitErrors {
  LowBitErrors() = default;  // of messages that are not rounded
  /// None so far. Throws OutOfMemory.
  LowBitErrors(std::int64_t elements, std::int64_t bits, const Communicator& ranks,
               const Stream& stream);
  explicit operator bool() const { return of_message.defined(); }

  std::int64_t bits = 32;
  Tensor of_message;  // of what this rank sent; as many elements as a message has
  Tensor of_sum;      // of the sums of its own shard, a shard_of of them
};

/// A sum over all ranks in few bits. Each rounds what it has, and sends each other one its shard; adds
/// up its own shard, f32, in order of rank, rounds the sum and sends it to all, which so have the
/// same bits. What rounding changed is made up for by whoever rounded ("error feedback"). Source:
/// Karimireddy et al. 2019, "Error feedback fixes SignSGD", algorithm 2; in DiLoCo: Thérien et al.
/// 2025, "MuLoCo".
class LowBitSum {
 public:
  /// `total`: what this rank has, less errors.of_message, of as many elements; then the sum. Throws
  /// OutOfMemory.
  LowBitSum(Tensor total, LowBitErrors errors, const Communicator& ranks, const Stream& stream);
  /// Changes the errors. Allocates nothing, so that it may go on beside other work
  /// (Communicator::begin). Once.
  void run(Communicator& ranks, const Stream& stream);

 private:
  const Tensor total_;
  const LowBitErrors errors_;
  const std::int64_t shard_;                                    // elements of each rank's
  const LowBitNumbers sent_;                                    // of all shards
  const LowBitNumbers received_;                                // this rank's shard, by rank
  const Tensor other_;                                          // one rank's part of the own shard
  const std::vector<std::int64_t> code_counts_, scale_counts_;  // by rank
};

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
