#include "memory/quantization.h"

#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "src/core/threads.h"

namespace hybrid_trainer {

namespace {

using kernels::FourBitTensors, kernels::FourBitType, kernels::kFourBitBlock,
    kernels::kFourBitLevelBlock;
using kernels::MicroScalingTensors, kernels::kMicroScalingBlock, kernels::kMicroScalingValues;

/// Encodes a row in 8 bits and returns its largest magnitude.
float encode_row(std::int8_t* codes, const float* values, std::int64_t count) {
  float most = 0;
  for (std::int64_t i = 0; i < count; ++i) most = std::max(most, std::abs(values[i]));
  const float factor = most > 0 ? 127.0f / most : 0;
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] = static_cast<std::int8_t>(std::nearbyint(values[i] * factor));
  return most;
}

/// Returns the index of the value nearest to x, which is the number of midpoints below x.
template <std::size_t kCount>
std::uint8_t nearest(const std::array<float, kCount>& middles, float x) {
  return static_cast<std::uint8_t>(std::lower_bound(middles.begin(), middles.end(), x) -
                                   middles.begin());
}

template <std::size_t kCount>
constexpr std::array<float, kCount - 1> middles_of(const std::array<float, kCount>& values) {
  std::array<float, kCount - 1> middles{};
  for (std::size_t i = 0; i + 1 < kCount; ++i) middles[i] = (values[i] + values[i + 1]) / 2;
  return middles;
}

struct FourBitOrder {
  std::array<std::uint8_t, 16> codes{};  // in ascending order of value, then of code
  std::array<float, 15> middles{};
};

constexpr FourBitOrder order_of(const std::array<float, 16>& values) {
  FourBitOrder order;
  std::array<float, 16> sorted{};
  for (std::size_t code = 0; code < 16; ++code) {
    std::size_t at = code;
    for (; at > 0 && sorted[at - 1] > values[code]; --at) {
      sorted[at] = sorted[at - 1];
      order.codes[at] = order.codes[at - 1];
    }
    sorted[at] = values[code];
    order.codes[at] = static_cast<std::uint8_t>(code);
  }
  order.middles = middles_of(sorted);
  return order;
}

/// Divides numbers by the largest magnitude of their block, calls encode(i, x) and returns the
/// magnitudes. Like bitsandbytes, multiplies complete blocks by the reciprocal.
template <class Encode>
std::vector<float> encode_blocks(const float* values, std::int64_t count, std::int64_t size,
                                 const Encode& encode) {
  constexpr float kMin = 1e-38f;
  std::vector<float> magnitudes(static_cast<std::size_t>((count + size - 1) / size));
  run_each(std::ssize(magnitudes), 256, [&](std::int64_t block) {
    const std::int64_t first = block * size, last = std::min(count, first + size);
    float most = 0;
    for (std::int64_t i = first; i < last; ++i) most = std::max(most, std::abs(values[i]));
    const bool whole = last - first == size;
    const float divisor = std::max(most, kMin), factor = 1.0f / divisor;
    magnitudes[static_cast<std::size_t>(block)] = whole ? most : divisor;
    for (std::int64_t i = first; i < last; ++i)
      encode(i, std::clamp(whole ? values[i] * factor : values[i] / divisor, -1.0f, 1.0f));
  });
  return magnitudes;
}

Tensor tensor_of(const void* values, std::int64_t count, DType dtype, const Stream& host) {
  Tensor tensor = Tensor::empty({count}, dtype, MemoryKind::kWorkspace, host);
  std::copy_n(static_cast<const char*>(values), tensor.bytes(), static_cast<char*>(tensor.raw()));
  return tensor;
}

constexpr std::uint8_t kNoNumber = 255;  // exponent that marks a block with a NaN

std::uint8_t code_of(float size) {
  std::uint8_t code = 0;
  for (; code < 7; ++code) {
    const float middle = (kMicroScalingValues[code] + kMicroScalingValues[code + 1u]) / 2;
    if (size < middle || (size == middle && code % 2 == 0)) break;
  }
  return code;
}

/// Returns the biased exponent ⌊log2 of the largest magnitude⌋ − 2, clamped to a byte.
std::uint8_t exponent_of(const float* values) {
  float largest = 0;
  for (std::int64_t i = 0; i < kMicroScalingBlock; ++i) {
    if (!std::isfinite(values[i])) return kNoNumber;
    largest = std::max(largest, std::abs(values[i]));
  }
  const auto biased = static_cast<int>(std::bit_cast<std::uint32_t>(largest) >> 23);
  return static_cast<std::uint8_t>(std::max(biased - 2, 0));
}

void encode_block(std::uint8_t* codes, std::uint8_t& exponent, const float* values) {
  exponent = exponent_of(values);
  const float factor = kernels::micro_scaling_factor(exponent);
  std::array<std::uint8_t, kMicroScalingBlock> all{};
  if (exponent != kNoNumber) {
    std::transform(values, values + kMicroScalingBlock, all.begin(), [&](float x) {
      return static_cast<std::uint8_t>(code_of(std::abs(x) / factor) | (std::signbit(x) ? 8 : 0));
    });
  }
  for (std::size_t i = 0; i < all.size(); i += 2)
    codes[i / 2] = static_cast<std::uint8_t>(all[i] | all[i + 1] << 4);
}

}  // namespace

kernels::EightBitTensors quantize_eight_bit(const Tensor& values, const Stream& home) {
  const std::int64_t rows = values.size(0), columns = values.size(1);
  auto tensors = kernels::EightBitTensors::empty(rows, columns, home);
  if (values.device().simulated || home.device().simulated) return tensors;
  const Stream host(values.pool());
  auto made = kernels::EightBitTensors::empty(rows, columns, host);
  const float* const from = values.data<float>();
  std::int8_t* const codes = made.codes.data<std::int8_t>();
  float* const magnitudes = made.magnitudes.data<float>();
  run_each(rows, 16, [&](std::int64_t row) {
    magnitudes[row] = encode_row(codes + row * columns, from + row * columns, columns);
  });
  wait_for_copy(tensors.codes, made.codes, home);
  wait_for_copy(tensors.magnitudes, made.magnitudes, home);
  return tensors;
}

FourBitTensors quantize_four_bit(const Tensor& values, FourBitType type, const Stream& home) {
  static constexpr FourBitOrder kNormals = order_of(kernels::kFourBitValues),
                                kFloats = order_of(kernels::kFourBitFloats);
  const FourBitOrder& order = type == FourBitType::kNormal ? kNormals : kFloats;
  const auto code_of = [&](float x) { return order.codes[nearest(order.middles, x)]; };
  static const auto level_middles = middles_of(kernels::kFourBitLevels);
  const std::int64_t count = values.elements();
  FourBitTensors tensors = FourBitTensors::empty(count, type, home);
  if (values.device().simulated || home.device().simulated) return tensors;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(count + count % 2), code_of(0));
  std::vector<float> magnitudes = encode_blocks(
      values.data<float>(), count, kFourBitBlock,
      [&](std::int64_t i, float x) { codes[static_cast<std::size_t>(i)] = code_of(x); });
  for (std::size_t i = 0; i < codes.size() / 2; ++i)
    codes[i] = static_cast<std::uint8_t>(codes[2 * i] << 4 | codes[2 * i + 1]);
  double sum = 0;
  for (const float magnitude : magnitudes) sum += static_cast<double>(magnitude);
  tensors.offset = static_cast<float>(sum / static_cast<double>(magnitudes.size()));
  for (float& magnitude : magnitudes) magnitude -= tensors.offset;
  std::vector<std::uint8_t> levels(magnitudes.size());
  const std::vector<float> scales = encode_blocks(
      magnitudes.data(), std::ssize(magnitudes), kFourBitLevelBlock, [&](std::int64_t i, float x) {
        levels[static_cast<std::size_t>(i)] = nearest(level_middles, x);
      });
  const Stream host(values.pool());
  const auto put = [&](const Tensor& to, const void* from) {
    wait_for_copy(to, tensor_of(from, to.elements(), to.dtype(), host), home);
  };
  put(tensors.codes, codes.data());
  put(tensors.levels, levels.data());
  put(tensors.scales, scales.data());
  return tensors;
}

MicroScalingTensors quantize_micro_scaling(const Tensor& values, const Stream& home) {
  const std::int64_t rows = values.size(0), columns = values.size(1);
  if (columns % kMicroScalingBlock != 0)
    throw DataError(concat("mxfp4 uses blocks of ", kMicroScalingBlock, " numbers, but rows have ",
                           columns, "; use int8, nf4 or bf16 instead"));
  auto tensors = MicroScalingTensors::empty(rows, columns, home);
  if (values.device().simulated || home.device().simulated) return tensors;
  const auto made = MicroScalingTensors::empty(rows, columns, Stream(values.pool()));
  const float* const from = values.data<float>();
  std::uint8_t *const codes = made.codes.data<std::uint8_t>(), *const exponents =
                                                                   made.exponents
                                                                       .data<std::uint8_t>();
  run_each(made.exponents.elements(), 512, [&](std::int64_t block) {
    encode_block(codes + block * kMicroScalingBlock / 2, exponents[block],
                 from + block * kMicroScalingBlock);
  });
  wait_for_copy(tensors.codes, made.codes, home);
  wait_for_copy(tensors.exponents, made.exponents, home);
  return tensors;
}

}  // namespace hybrid_trainer
