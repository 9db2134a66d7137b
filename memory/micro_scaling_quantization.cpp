#include "hybrid_trainer/memory/micro_scaling_quantization.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/thread_team.h"

namespace hybrid_trainer {
namespace {

using kernels::MicroScalingTensors, kernels::kMicroScalingBlock, kernels::kMicroScalingValues;

constexpr std::uint8_t kNoNumber = 255;  // exponent of a block with a NaN

/// Of a magnitude; on a bound between two codes the even one.
std::uint8_t code_of(float size) {
  std::uint8_t code = 0;
  for (; code < 7; ++code) {
    const float middle = (kMicroScalingValues[code] + kMicroScalingValues[code + 1u]) / 2;
    if (size < middle || (size == middle && code % 2 == 0)) break;
  }
  return code;
}

/// The exponent of 2^(⌊log2 of the largest⌋ − 2), within what a byte holds.
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

MicroScalingTensors quantize_micro_scaling(const Tensor& values, const Stream& home) {
  const std::int64_t rows = values.size(0), columns = values.size(1);
  if (columns % kMicroScalingBlock != 0)
    throw DataError(concat("mxfp4 has blocks of ", kMicroScalingBlock, " numbers, which rows of ",
                           columns, " cut; hold the weights as int8, nf4 or bf16"));
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
