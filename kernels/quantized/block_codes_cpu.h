#pragma once

#include <cstring>
#include <vector>

#include "hybrid_trainer/core/tensor.h"
#include "kernels/quantized/weight_blocks.h"

// Products of block-quantized weights on all instruction sets. A chunk is 64 codes, two blocks or a
// quarter of a superblock, multiplied as unsigned numbers; the contribution of their offset is
// subtracted. Each of 16 lanes is an integer sum of four products, added to its f32 sum, so the
// bits depend only on the operands.

namespace hybrid_trainer::kernels::cpu {

constexpr std::int64_t kChunk = 64, kLanesOfChunk = 16;

constexpr bool is_super(BlockFormat format) { return block_size(format).numbers == 256; }

/// Returns the offset added to codes to make them unsigned.
constexpr int offset_of(BlockFormat format) {
  constexpr int kOffsets[kBlockFormats] = {128, 8, 0, 16, 0, 0, 0, 32, 12};
  return kOffsets[static_cast<int>(format)];
}

/// Returns whether a block has a minimum in addition to its scale.
constexpr bool has_min(BlockFormat format) {
  return format == BlockFormat::kQ4_1 || format == BlockFormat::kQ5_1 ||
         format == BlockFormat::kQ4_K || format == BlockFormat::kQ5_K;
}

/// Return the offsets in a block of the fifth bits of 5-bit codes (-1: none), and of the codes.
constexpr std::int64_t bits_at(BlockFormat format) {
  return format == BlockFormat::kQ5_0 ? 2 : format == BlockFormat::kQ5_1 ? 4 : -1;
}
constexpr std::int64_t codes_at(BlockFormat format) {
  constexpr std::int64_t kPlaces[kBlockFormats] = {2, 2, 4, 6, 8, 16, 48, 0, 1};
  return kPlaces[static_cast<int>(format)];
}
/// Returns whether a byte combines a code of the first half of a block with one of the second half.
/// Codes of two blocks are then read as both first halves, followed by both second halves.
constexpr bool has_halves(BlockFormat format) {
  return !is_super(format) && format != BlockFormat::kQ8_0;
}

/// Values of MXFP4 codes in units of 1/2, plus their offset.
constexpr std::uint8_t kMicroCodes[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                          12, 11, 10, 9,  8,  6,  4,  0};

struct RoundedRow {
  const std::int8_t* codes;     // 64 per chunk
  const std::int32_t* offsets;  // 16 per chunk; they subtract the codes' offset
  const float* scales;       // four per pair of blocks: scale, sum, scale, sum; one per superblock
  const std::int16_t* sums;  // sum of every 32 codes of a superblock
};

template <class T>
T load_bits(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

inline float half_at(const void* from) { return static_cast<float>(load_bits<_Float16>(from)); }

/// Eight scales and eight minimums of a superblock, one byte each.
struct SuperScales {
  std::uint64_t scales, mins;
};
inline SuperScales super_scales(const std::uint8_t* block) {
  const auto a = load_bits<std::uint32_t>(block + 4), b = load_bits<std::uint32_t>(block + 8),
             c = load_bits<std::uint32_t>(block + 12);
  const std::uint32_t upper_scales = (c & 0x0F0F0F0F) | (a >> 2 & 0x30303030),
                      upper_mins = (c >> 4 & 0x0F0F0F0F) | (b >> 2 & 0x30303030);
  return {(a & 0x3F3F3F3F) | std::uint64_t{upper_scales} << 32,
          (b & 0x3F3F3F3F) | std::uint64_t{upper_mins} << 32};
}

template <BlockFormat kFormat>
constexpr std::int64_t kBytes = block_size(kFormat).bytes;

/// The last block of a row with an odd number of blocks, paired with a block of zeros.
template <BlockFormat kFormat>
struct LastPair {
  std::uint8_t bytes[2 * kBytes<kFormat>] = {};
  explicit LastPair(const std::uint8_t* block) { std::memcpy(bytes, block, kBytes<kFormat>); }
};

/// Rows of x, rounded to 8 bits as a weight format requires: in blocks of 32 with scale and sum in
/// f16, or of 256 with an f32 scale. A block with a NaN or an infinity gets the scale NaN.
class RoundedInputs {
 public:
  /// x: (N, inputs) f32 or bf16. Allocates workspace; on a simulated device does nothing else.
  RoundedInputs(BlockFormat format, const Tensor& x, const Stream& stream);
  BlockFormat format() const { return format_; }
  const std::vector<RoundedRow>& rows() const { return rows_; }

 private:
  BlockFormat format_;
  Tensor memory_;
  std::vector<RoundedRow> rows_;
};

}  // namespace hybrid_trainer::kernels::cpu
