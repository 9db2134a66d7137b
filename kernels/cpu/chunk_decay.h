#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

/// Tokens of a scan that are computed together.
inline constexpr std::int64_t kDeltaChunk = 64;
/// A decay e^x below this exponent is 0: f32 ends there.
inline constexpr float kLeastExponent = -87.3f;

/// e^log for log <= 0, 0 where f32 has no room for it.
inline float decay_of_log(double log) {
  return log < static_cast<double>(kLeastExponent) ? 0.0f : exponential(static_cast<float>(log));
}

/// What is left of a state from one token of a chunk to another. Sums of logarithms are in double,
/// and no decay is a quotient of two, so that none overflows and strong ones take no digits from
/// their neighbours.
struct ChunkDecay {
  std::int64_t rows = 0;
  double sums[kDeltaChunk];  // c_i = Σ_{j ≤ i} of the logarithms
  std::int32_t
      begins[kDeltaChunk];        // the row at which what row i knows begins; -1: before the chunk
  float from_start[kDeltaChunk];  // e^{c_i}: what row i has of the state before the chunk
  float to_end[kDeltaChunk];      // e^{c_last − c_j}: what the state after the chunk has of row j
  float whole() const { return from_start[rows - 1]; }
  /// Whether the row begins with no state: a document begins, or the decay leaves nothing.
  bool resets(std::int64_t row) const { return begins[row] == row; }
  /// The first row that row i knows.
  std::int64_t first(std::int64_t row) const { return std::max(begins[row], 0); }

  /// logs: of the decay before each of `count` rows joins. positions: those of the rows, or null.
  void read(const float* logs, const std::int32_t* positions, std::int64_t count) {
    rows = count;
    double sum = 0;
    std::int32_t begin = -1;
    for (std::int64_t i = 0; i < rows; ++i) {
      const bool is_reset = logs[i] < kLeastExponent || (positions != nullptr && positions[i] == 0);
      if (is_reset) begin = static_cast<std::int32_t>(i);
      sum += is_reset ? 0.0 : static_cast<double>(logs[i]);
      sums[i] = sum;
      begins[i] = begin;
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      from_start[i] = begins[i] < 0 ? decay_of_log(sums[i]) : 0.0f;
      to_end[i] = begins[i] == begin ? decay_of_log(sum - sums[i]) : 0.0f;
    }
  }

  /// weights (rows, rows): e^{c_i − c_j} for the rows j up to i that row i knows, else 0.
  void write_between(float* weights) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      float* const row = weights + i * rows;
      std::fill(row, row + rows, 0.0f);
      const double sum = sums[i];
#pragma omp simd
      for (std::int64_t j = first(i); j <= i; ++j) row[j] = decay_of_log(sum - sums[j]);
    }
  }
};

}  // namespace hybrid_trainer::kernels::cpu
