#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace hybrid_trainer {

enum class DType { kF32, kBF16, kI32, kU16, kU8, kF64, kI8 };

std::size_t size_of(DType dtype);
const char* name_of(DType dtype);

/// bfloat16, the upper half of a float. A storage type; arithmetic uses float.
struct BFloat16 {
  std::uint16_t bits = 0;
};

/// Rounds to nearest, ties to even; NaN stays NaN.
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

/// Operand format of matrix products. All accumulate in f32.
enum class ProductForm {
  kAsStored,  // dtype of the activations
  kFp16,      // operands and results rounded to IEEE half
  kFp8,       // operands rounded: E4M3 in forward, E5M2 for gradients
};

/// Numeric precision of a phase.
struct Precision {
  DType dtype = DType::kF32;  // dtype of activations and compute copies of weights: f32 or bf16
  ProductForm products = ProductForm::kAsStored;
  bool operator==(const Precision&) const = default;
};

/// Row-major shape of up to five dimensions, stored inline.
class Shape {
 public:
  static constexpr int kMaxRank = 5;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dimensions);
  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dimensions_[static_cast<std::size_t>(i)]; }
  std::int64_t elements() const;
  bool operator==(const Shape&) const = default;
  std::string text() const;  // "(8, 64)"
  void append(std::int64_t dimension);

 private:
  std::array<std::int64_t, kMaxRank> dimensions_{};
  int rank_ = 0;
};

}  // namespace hybrid_trainer
