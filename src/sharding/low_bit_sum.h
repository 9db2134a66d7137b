#pragma once

#include <vector>

#include "hybrid_trainer/distributed/communicator.h"

namespace hybrid_trainer {

/// Numbers in 8 or 4 bits each, in blocks that have an f32 scale each: the dynamic tree of
/// kernels/quantization.h, or NormalFloat 4.
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

}  // namespace hybrid_trainer
