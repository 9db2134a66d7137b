#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace hybrid_trainer {

enum class DType { kF32, kBF16, kI32, kU16, kU8, kF64, kI8 };

std::size_t size_of(DType dtype);
const char* name_of(DType dtype);

/// Brain floating point: the upper half of a float. Storage only; arithmetic is done in float.
struct BFloat16 {
  std::uint16_t bits = 0;
};

/// Round to nearest, ties to even; a NaN stays a NaN.
constexpr BFloat16 to_bfloat16(float value) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  return {static_cast<std::uint16_t>((is_nan ? (bits | 0x00400000u) : rounded) >> 16)};
}

constexpr float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
constexpr float to_float(float value) { return value; }

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<std::uint16_t> {
  static constexpr DType value = DType::kU16;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::kI8;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::kU8;
};

}  // namespace hybrid_trainer
