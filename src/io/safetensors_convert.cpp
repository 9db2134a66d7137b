#include "src/io/safetensors_convert.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "hybrid_trainer/core/narrow.h"

namespace hybrid_trainer {
namespace {

/// IEEE 754 half precision.
struct Float16 {
  std::uint16_t bits = 0;
};

float to_float(Float16 value) {
  const float sign = (value.bits & 0x8000u) != 0 ? -1.0f : 1.0f;
  const int exponent = (value.bits >> 10) & 31;
  const int fraction = value.bits & 1023;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  return exponent == 0 ? sign * std::ldexp(static_cast<float>(fraction), -24)
                       : sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}
float to_float(double value) { return static_cast<float>(value); }
float to_float(std::int64_t value) { return static_cast<float>(value); }

void store(float& to, float value) { to = value; }
void store(BFloat16& to, float value) { to = to_bfloat16(value); }

template <class To, class From>
bool through_float(void* to, const void* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, static_cast<const char*>(from) + i * sizeof(From), sizeof(From));
    store(static_cast<To*>(to)[i], to_float(value));
  }
  return true;
}

bool narrow_integers(void* to, const void* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t value = 0;
    std::memcpy(&value, static_cast<const char*>(from) + i * sizeof value, sizeof value);
    if (!holds_number<std::int32_t>(value)) return false;
    static_cast<std::int32_t*>(to)[i] = narrow<std::int32_t>(value);
  }
  return true;
}

template <class To>
ElementConversion find_float_conversion(std::string_view from) {
  if (from == "F32") return {through_float<To, float>, 4};
  if (from == "BF16") return {through_float<To, BFloat16>, 2};
  if (from == "F16") return {through_float<To, Float16>, 2};
  if (from == "F64") return {through_float<To, double>, 8};
  if (from == "I64") return {through_float<To, std::int64_t>, 8};
  return {};
}

}  // namespace

ElementConversion find_conversion(std::string_view from, DType to) {
  if (to == DType::kF32) return find_float_conversion<float>(from);
  if (to == DType::kBF16) return find_float_conversion<BFloat16>(from);
  if (to == DType::kI32 && from == "I64") return {narrow_integers, 8};
  return {};
}

}  // namespace hybrid_trainer
