#pragma once

#include "src/distributed/ordered_sum.h"

namespace hybrid_trainer {

/// Values quantized to 8 bits (dynamic tree, see kernels/quantized/quantization.h) or 4 bits
/// (NormalFloat 4), in blocks with one f32 scale each.
class QuantizedValues {
 public:
  static std::int64_t block(std::int64_t bits);
  /// `elements` must be a multiple of the block size. Throws OutOfMemory.
  QuantizedValues(std::int64_t elements, std::int64_t bits, const Stream& stream);
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

/// Accumulated rounding errors of messages (sent minus exact), f32, which the next sum compensates.
struct QuantizationErrors {
  QuantizationErrors() = default;  // for messages that are not rounded
  /// Sets all errors to zero. Throws OutOfMemory.
  QuantizationErrors(std::int64_t elements, std::int64_t bits, const Communicator& ranks,
                     const Stream& stream);
  explicit operator bool() const { return message_error.defined(); }

  std::int64_t bits = 32;
  Tensor message_error;  // errors of this rank's messages; as large as a message
  Tensor sum_error;      // errors of the sums of this rank's shard
};

/// A low-bit sum. Each rank quantizes its values and sends every other rank that rank's shard. Each
/// rank adds up its shard in f32, in the order of ranks, quantizes the sum and sends it to all, so
/// that all have the same bits. The rank that rounds also compensates the error in the next sum.
/// Source: Karimireddy et al. 2019, "Error feedback fixes SignSGD", algorithm 2; in DiLoCo: Thérien
/// et al. 2025, "MuLoCo".
class QuantizedSum {
 public:
  /// `total` has this rank's values minus errors.message_error. `run` overwrites it. Throws
  /// OutOfMemory.
  QuantizedSum(Tensor total, QuantizationErrors errors, const Communicator& ranks,
               const Stream& stream);
  /// Computes the sum and updates the errors. Call it once. Allocates no memory, so that it may
  /// overlap with other work.
  void run(Communicator& ranks, const Stream& stream);

 private:
  const Tensor total_;
  const QuantizationErrors errors_;
  const std::int64_t shard_;                                    // elements per rank
  const QuantizedValues sent_;                                  // quantized values of all shards
  const QuantizedValues received_;                              // this rank's shard from each rank
  const Tensor other_;                                          // dequantized shard of one rank
  const std::vector<std::int64_t> code_counts_, scale_counts_;  // indexed by rank
};

/// An asynchronous sum over all ranks that overlaps with computation, and sums of a few scalars.
class DelayedSum {
 public:
  DelayedSum() = default;
  /// Starts to sum `mine` (f32), whose memory it takes over and overwrites. Results do not depend
  /// on when `wait` is called. `scalars`: the same number on each rank. On CUDA, blocks until the
  /// stream's work is done, but not for communication. Throws OutOfMemory.
  DelayedSum(const Tensor& mine, const std::vector<double>& scalars, Communicator& ranks,
             const Stream& stream);
  /// Starts a sum in which each rank receives only its shards' sums. Other elements do not change.
  DelayedSum(const Tensor& mine, const std::vector<SharedElements>& shared,
             const std::vector<double>& scalars, Communicator& ranks, const Stream& stream);
  /// Starts a QuantizedSum with the size of `errors`.
  DelayedSum(const Tensor& mine, const QuantizationErrors& errors,
             const std::vector<double>& scalars, Communicator& ranks, const Stream& stream);
  /// Returns the sum and releases it. Blocks until it has arrived. Throws RankLost.
  Tensor wait();
  /// Returns the sum of a scalar over all ranks, after `wait`; 0 on a simulated device.
  double sum_of(std::size_t scalar) const;
  /// Returns the sum of the squares of the sums, if each rank receives only its own shards.
  double sum_of_squares() const;

 private:
  /// A range of elements to sum. `own`: this rank's shard of the range, which receives the shard's
  /// sum.
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
  /// Sums of squares of chunks, if the sum of squares is needed.
  Tensor square_sums_;
  std::shared_ptr<QuantizedSum> quantized_sum_;  // used instead of pieces
  CollectiveTicket ticket_ = 0;
};

}  // namespace hybrid_trainer
