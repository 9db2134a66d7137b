#include "kernels/backend/elements.cuh"
#include "kernels/backend/half_float.h"
#include "kernels/quantized/weight_blocks.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

__device__ const int kMicroHalves[8] = {0, 1, 2, 3, 4, 6, 8, 12};

__device__ float half_at(const std::uint8_t* from) {
  return from_half_bits(static_cast<std::uint16_t>(from[0] | from[1] << 8));
}

/// Returns code i of a block of 32 4-bit codes, whose first half is in the bytes' lower halves.
__device__ int nibble(const std::uint8_t* codes, int i) {
  return i < 16 ? codes[i] & 15 : codes[i - 16] >> 4;
}
__device__ int fifth_bit(const std::uint8_t* bits, int i) {
  return (bits[i / 8] >> i % 8 & 1) << 4;
}

__device__ float number_of_block(BlockFormat format, const std::uint8_t* block, int i) {
  switch (format) {
    case BlockFormat::kQ8_0:
      return static_cast<float>(static_cast<std::int8_t>(block[2 + i])) * half_at(block);
    case BlockFormat::kQ4_0: return static_cast<float>(nibble(block + 2, i) - 8) * half_at(block);
    case BlockFormat::kQ4_1:
      return static_cast<float>(nibble(block + 4, i)) * half_at(block) + half_at(block + 2);
    case BlockFormat::kQ5_0:
      return static_cast<float>((nibble(block + 6, i) | fifth_bit(block + 2, i)) - 16) *
             half_at(block);
    case BlockFormat::kQ5_1:
      return static_cast<float>(nibble(block + 8, i) | fifth_bit(block + 4, i)) * half_at(block) +
             half_at(block + 2);
    default: break;
  }
  const int code = nibble(block + 1, i), size = kMicroHalves[code & 7];
  return static_cast<float>(code < 8 ? size : -size) * micro_scale(block[0]);
}

/// Returns value i of a superblock of Q4_K, or of Q5_K, which has fifth bits. Each product is
/// exact, so that only the final subtraction rounds.
__device__ float number_of_fives(bool has_fifth, const std::uint8_t* block, int i) {
  const int part = i / 32, place = i % 32, four = part % 4;
  const std::uint8_t *const packed = block + 4, *const codes = block + (has_fifth ? 48 : 16);
  int scale = packed[four] & 63, least = packed[four + 4] & 63;
  if (part >= 4) {
    scale = (packed[four + 8] & 15) | (packed[four] >> 6) << 4;
    least = packed[four + 8] >> 4 | (packed[four + 4] >> 6) << 4;
  }
  const int both = codes[part / 2 * 32 + place];
  int code = part % 2 == 0 ? both & 15 : both >> 4;
  if (has_fifth) code |= (block[16 + place] >> part & 1) << 4;
  return half_at(block) * static_cast<float>(scale) * static_cast<float>(code) -
         half_at(block + 2) * static_cast<float>(least);
}

__device__ float number_of_sixes(const std::uint8_t* block, int i) {
  const int half = i / 128, quarter = i % 128 / 32, place = i % 32;
  const int both = block[half * 64 + quarter % 2 * 32 + place];
  const int four = quarter < 2 ? both & 15 : both >> 4,
            two = block[128 + half * 32 + place] >> 2 * quarter & 3;
  const float scale =
      half_at(block + 208) * static_cast<float>(static_cast<std::int8_t>(block[192 + i / 16]));
  return scale * static_cast<float>((four | two << 4) - 32);
}

template <class T>
struct DequantizeBlocks {
  T* values;
  const std::uint8_t* bytes;
  BlockFormat format;
  BlockSize size;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::uint8_t* const block = bytes + i / size.numbers * size.bytes;
    const int place = static_cast<int>(i % size.numbers);
    float number;
    if (format == BlockFormat::kQ4_K || format == BlockFormat::kQ5_K) {
      number = number_of_fives(format == BlockFormat::kQ5_K, block, place);
    } else if (format == BlockFormat::kQ6_K) {
      number = number_of_sixes(block, place);
    } else {
      number = number_of_block(format, block, place);
    }
    store(values + i, number);
  }
};

}  // namespace

void dequantize_blocks(const Tensor& values, const BlockTensors& from, const Stream& stream) {
  visit_real(values.dtype(), [&]<class T>(T) {
    const DequantizeBlocks<T> body{values.data<T>(), from.bytes.data<std::uint8_t>(), from.format,
                                   block_size(from.format)};
    for_packs<1>(stream, "dequantize_blocks", values.elements(), body, body.values);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
