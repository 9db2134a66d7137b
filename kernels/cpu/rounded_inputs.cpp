#include "kernels/cpu/rounded_inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

constexpr std::int64_t kBlock = 32, kSuperBlock = 256;
constexpr float kMostCode = 127;
constexpr float kLeastNumber = 1e-36f;  // a block without a larger one becomes zeros

/// As f16 holds it; one that f16 does not reach stays.
float as_half(float value) {
  const auto half = static_cast<float>(static_cast<_Float16>(value));
  return std::isinf(half) ? value : half;
}

/// To the nearest, of two the even one; below 2^22.
float to_nearest(float value) {
  constexpr float kShift = 3 << 22;
  return (value + kShift) - kShift;
}

/// The largest magnitude; NaN where a number is NaN or infinite.
float largest_of(const float* x, std::int64_t count) {
  constexpr std::int32_t kInfinity = 0x7F800000;
  std::int32_t largest = 0;  // its bits: those of a NaN are above those of all numbers
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::int32_t>(x[i]) & 0x7FFFFFFF);
  return largest >= kInfinity ? std::numeric_limits<float>::quiet_NaN()
                              : std::bit_cast<float>(largest);
}

/// Codes of numbers times `inverse`; returns their sum.
std::int32_t round_codes(std::int8_t* codes, const float* x, std::int64_t count, float inverse) {
  std::int32_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) {
    const auto code = static_cast<std::int32_t>(std::min(to_nearest(x[i] * inverse), kMostCode));
    codes[i] = static_cast<std::int8_t>(code);
    sum += code;
  }
  return sum;
}

/// Where the parts of a rounded row lie, in bytes.
struct RowLayout {
  explicit RowLayout(BlockFormat format, std::int64_t inputs)
      : chunks((inputs + kChunk - 1) / kChunk),
        offsets(chunks * kChunk),
        scales(offsets + (offset_of(format) == 0 ? 0 : chunks * kChunk)),
        sums(scales + chunks * 16),
        end(sums + (is_super(format) ? chunks * 4 : 0)) {}
  std::int64_t chunks, offsets, scales, sums, end;
};

/// Writes the parts of one rounded row.
struct RowWriter {
  BlockFormat format;
  std::int8_t* codes;
  std::int32_t* offsets;
  float* scales;
  std::int16_t* sums;

  /// Of a pair of blocks' 64 numbers, zeros behind the last one.
  void round_pair(const float* x, std::int64_t pair) const {
    std::int8_t own[kChunk];
    for (int b = 0; b < 2; ++b) {
      const float largest = largest_of(x + b * kBlock, kBlock);
      const float scale = largest / kMostCode;
      std::fill_n(own + b * kBlock, kBlock, std::int8_t{0});
      std::int32_t sum = 0;
      if (largest >= kLeastNumber)
        sum = round_codes(own + b * kBlock, x + b * kBlock, kBlock, kMostCode / largest);
      scales[4 * pair + 2 * b] = as_half(scale);
      scales[4 * pair + 2 * b + 1] =
          has_least(format) ? as_half(scale * static_cast<float>(sum)) : 0;
    }
    std::int8_t* const to = codes + pair * kChunk;
    if (!has_halves(format)) {
      std::copy_n(own, kChunk, to);
      return;
    }
    for (int quarter = 0; quarter < 4; ++quarter)  // the middle two change places
      std::copy_n(own + 16 * quarter, 16, to + 16 * (quarter % 2 * 2 + quarter / 2));
  }
  void round_super(const float* x, std::int64_t block) const {
    std::int8_t* const to = codes + block * kSuperBlock;
    const float largest = largest_of(x, kSuperBlock);
    if (!(largest >= kLeastNumber)) {
      scales[block] = largest < kLeastNumber ? 0 : largest;  // NaN
      std::fill_n(to, kSuperBlock, std::int8_t{0});
      std::fill_n(sums + block * 8, 8, std::int16_t{0});
      return;
    }
    const float* const farthest =
        std::find_if(x, x + kSuperBlock, [=](float value) { return std::abs(value) == largest; });
    const float inverse = -kMostCode / *farthest;
    for (int part = 0; part < 8; ++part)
      sums[8 * block + part] = static_cast<std::int16_t>(
          round_codes(to + kBlock * part, x + kBlock * part, kBlock, inverse));
    scales[block] = 1 / inverse;
  }
  /// What takes the codes' offset off.
  void write_offsets(std::int64_t lanes) const {
    const int offset = offset_of(format);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const std::int8_t* const of = codes + 4 * lane;
      offsets[lane] = -offset * (of[0] + of[1] + of[2] + of[3]);
    }
  }
};

}  // namespace

RoundedInputs::RoundedInputs(BlockFormat format, const Tensor& x, const Stream& stream)
    : format_(format) {
  const std::int64_t rows = x.size(0), inputs = x.size(1);
  const RowLayout layout(format, inputs);
  const std::int64_t numbers = layout.chunks * kChunk;
  memory_ = empty_workspace(rows * (layout.end + numbers * 4), DType::kU8, stream);
  if (simulated(stream)) return;
  std::uint8_t* const memory = memory_.data<std::uint8_t>();
  const auto writer_of = [=](std::int64_t row) {
    std::uint8_t* const at = memory + row * layout.end;
    return RowWriter{format, reinterpret_cast<std::int8_t*>(at),
                     reinterpret_cast<std::int32_t*>(at + layout.offsets),
                     reinterpret_cast<float*>(at + layout.scales),
                     reinterpret_cast<std::int16_t*>(at + layout.sums)};
  };
  auto* const plain = reinterpret_cast<float*>(memory + rows * layout.end);
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    const T* const from = x.data<T>();
    parallel_rows(rows, inputs, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const RowWriter writer = writer_of(row);
        float* const own = plain + row * numbers;
        for (std::int64_t i = 0; i < inputs; ++i) own[i] = load(from + row * inputs + i);
        std::fill(own + inputs, own + numbers, 0.0f);
        if (is_super(format)) {
          for (std::int64_t block = 0; block < inputs / kSuperBlock; ++block)
            writer.round_super(own + block * kSuperBlock, block);
        } else {
          for (std::int64_t pair = 0; pair < layout.chunks; ++pair)
            writer.round_pair(own + pair * kChunk, pair);
        }
        if (offset_of(format) != 0) writer.write_offsets(layout.chunks * kLanesOfChunk);
      }
    });
  });
  for (std::int64_t row = 0; row < rows; ++row) {
    const RowWriter writer = writer_of(row);
    rows_.push_back({writer.codes, writer.offsets, writer.scales, writer.sums});
  }
}

}  // namespace hybrid_trainer::kernels::cpu
