#pragma once

#include <memory>
#include <vector>

#include "src/distributed/communicator.h"
#include "src/distributed/ordered_sum.h"

namespace hybrid_trainer {

/// Numbers in 8 bits (dynamic tree, see kernels/quantized/quantization.h) or 4 bits (NormalFloat
/// 4), in blocks with an f32 scale each.
class QuantizedValues {
 public:
  static std::int64_t block(std::int64_t bits);
  /// `elements` must be a multiple of the block size. Throws OutOfMemory.
  QuantizedValues(std::int64_t elements, std::int64_t bits, const Stream& stream);
  /// Quantizes and dequantizes f32 values of the same size.
  void write(const Tensor& values, const Stream& stream) const;
  void read(const Tensor& values, const Stream& stream) const;
  /// Returns a view of elements [first, last), which must be whole blocks.
  QuantizedValues part(std::int64_t first, std::int64_t last) const;
  const Tensor& codes() const { return codes_; }    // u8
  const Tensor& scales() const { return scales_; }  // f32

 private:
  QuantizedValues(std::int64_t bits, Tensor codes, Tensor scales)
      : bits_(bits), codes_(std::move(codes)), scales_(std::move(scales)) {}
  std::int64_t bits_;
  Tensor codes_, scales_;
};

/// Accumulated rounding errors of messages (sent minus exact), which the next sum compensates. f32.
/// Each rank's shard is padded to whole blocks.
struct QuantizationErrors {
  QuantizationErrors() = default;  // for messages without rounding
  /// Makes zero errors. Throws OutOfMemory.
  QuantizationErrors(std::int64_t elements, std::int64_t bits, const Communicator& ranks,
                     const Stream& stream);
  explicit operator bool() const { return message_error.defined(); }

  std::int64_t bits = 32;
  Tensor message_error;  // of this rank's messages; as large as a message
  Tensor sum_error;      // of the sums of this rank's shard
};

/// A low-bit sum over all ranks. Each rank quantizes its values and sends each other rank its
/// shard. Each rank adds up its own shard in f32, in order of rank, then quantizes the sum and
/// sends it to all, so all have the same bits. The rank that rounds also compensates the error
/// later ("error feedback"). Source: Karimireddy et al. 2019, "Error feedback fixes SignSGD",
/// algorithm 2; in DiLoCo: Thérien et al. 2025, "MuLoCo".
class QuantizedSum {
 public:
  /// `total`: this rank's values minus errors.message_error; run overwrites it. Throws OutOfMemory.
  QuantizedSum(Tensor total, QuantizationErrors errors, const Communicator& ranks,
               const Stream& stream);
  /// Computes the sum and updates the errors once. Allocates nothing, so it may overlap other work.
  void run(Communicator& ranks, const Stream& stream);

 private:
  const Tensor total_;
  const QuantizationErrors errors_;
  const std::int64_t shard_;                                    // elements per rank
  const QuantizedValues sent_;                                  // of all shards
  const QuantizedValues received_;                              // this rank's shard, by rank
  const Tensor other_;                                          // one rank's part of the own shard
  const std::vector<std::int64_t> code_counts_, scale_counts_;  // by rank
};

/// An asynchronous sum over all ranks that overlaps with computation, and sums of a few scalars.
class DelayedSum {
 public:
  DelayedSum() = default;
  /// Starts summing `mine` (f32), and keeps and overwrites its memory. Results do not depend on
  /// when wait is called. `scalars`: equally many on each rank, or none. On CUDA, blocks until the
  /// stream's work is done, but not for communication. Throws OutOfMemory.
  DelayedSum(const Tensor& mine, const std::vector<double>& scalars, Communicator& ranks,
             const Stream& stream);
  /// Starts a sum in which each rank gets only its own shards' sums. Other elements do not change.
  DelayedSum(const Tensor& mine, const std::vector<SharedElements>& shared,
             const std::vector<double>& scalars, Communicator& ranks, const Stream& stream);
  /// Starts a QuantizedSum, of as many elements as `errors`.
  DelayedSum(const Tensor& mine, const QuantizationErrors& errors,
             const std::vector<double>& scalars, Communicator& ranks, const Stream& stream);
  /// Returns the sum and releases it. Blocks until it has arrived. Throws RankLost.
  Tensor wait();
  /// Returns the sum of a scalar over all ranks, after wait. On a simulated device: 0.
  double sum_of(std::size_t scalar) const;
  /// Returns the sum's sum of squares. Only for sums in which each rank gets its own shards.
  double sum_of_squares() const;

 private:
  /// A range of elements to be summed. `own` is this rank's shard of them, which receives its sum.
  struct Piece {
    std::shared_ptr<OrderedReduction> reduction;
    Tensor own;
  };
  void take_scalars(const std::vector<double>& scalars);
  void take_pieces(const std::vector<SharedElements>& shared);
  Tensor scalars_of_rank() const;

  Communicator* ranks_ = nullptr;
  const Stream* stream_ = nullptr;
  Tensor total_;
  Tensor scalars_;  // (ranks, scalars and the sum of squares) f64; finally in host memory
  std::vector<Piece> pieces_;
  Tensor square_sums_;                           // of chunks, if the sum of squares is needed
  std::shared_ptr<QuantizedSum> quantized_sum_;  // instead of pieces
  CollectiveTicket ticket_ = 0;
};

}  // namespace hybrid_trainer
