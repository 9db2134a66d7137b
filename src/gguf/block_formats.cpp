#include "src/gguf/block_formats.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/core/narrow.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kBlock = 32;

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(T));
}

float from_half(const std::byte* from) { return static_cast<float>(load<_Float16>(from)); }
void store_half(float value, std::byte* to) { store(static_cast<_Float16>(value), to); }

void encode_half(std::span<const float> values, std::byte* to) {
  for (const float value : values) {
    const auto half = static_cast<_Float16>(value);
    if (std::isfinite(value) && !std::isfinite(static_cast<float>(half)))
      throw DataError(
          concat("a weight is ", value, ", above the maximum of f16, 65504; use --type bf16"));
    store(half, to);
    to += sizeof(half);
  }
}

void encode_q8_0(std::span<const float> values, std::byte* to) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const float scale = largest / 127, inverse = scale == 0 ? 0 : 1 / scale;
  store_half(scale, to);
  for (std::size_t i = 0; i < kBlock; ++i)
    store(narrow<std::int8_t>(std::round(values[i] * inverse)), to + 2 + i);
}

void encode_q4_0(std::span<const float> values, std::byte* to) {
  const float farthest = *std::max_element(
      values.begin(), values.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  const float scale = farthest / -8, inverse = scale == 0 ? 0 : 1 / scale;
  const auto code = [&](float value) {
    return std::min(15, narrow<int>(double{value} * double{inverse} + 8.5));
  };
  store_half(scale, to);
  for (std::size_t i = 0; i < kBlock / 2; ++i)
    to[2 + i] = static_cast<std::byte>(code(values[i]) | code(values[i + kBlock / 2]) << 4);
}

}  // namespace

std::optional<kernels::BlockFormat> block_format_of(GgufType type) {
  using kernels::BlockFormat;
  switch (type) {
    case GgufType::kQ8_0: return BlockFormat::kQ8_0;
    case GgufType::kQ4_0: return BlockFormat::kQ4_0;
    case GgufType::kQ4_1: return BlockFormat::kQ4_1;
    case GgufType::kQ5_0: return BlockFormat::kQ5_0;
    case GgufType::kQ5_1: return BlockFormat::kQ5_1;
    case GgufType::kQ4_K: return BlockFormat::kQ4_K;
    case GgufType::kQ5_K: return BlockFormat::kQ5_K;
    case GgufType::kQ6_K: return BlockFormat::kQ6_K;
    case GgufType::kMXFP4: return BlockFormat::kMXFP4;
    case GgufType::kF32:
    case GgufType::kF16:
    case GgufType::kBF16: break;
  }
  return {};
}

void encode_blocks(GgufType type, std::span<const float> values, std::byte* to) {
  if (type == GgufType::kF32) {
    std::memcpy(to, values.data(), values.size_bytes());
  } else if (type == GgufType::kF16) {
    encode_half(values, to);
  } else if (type == GgufType::kBF16) {
    for (const float value : values) store(to_bfloat16(value), to), to += sizeof(BFloat16);
  } else if (type == GgufType::kQ8_0 || type == GgufType::kQ4_0) {
    for (; !values.empty(); values = values.subspan(kBlock), to += block_of(type).bytes)
      type == GgufType::kQ8_0 ? encode_q8_0(values.first(kBlock), to)
                              : encode_q4_0(values.first(kBlock), to);
  } else {
    throw UsageError(concat("writing is not supported for ", name_of(type)));
  }
}

void decode_blocks(GgufType type, const std::byte* from, std::span<float> values) {
  if (const auto format = block_format_of(type))
    return kernels::decode_blocks(*format, from, values);
  const std::size_t bytes = block_of(type).bytes;
  for (float& value : values) {
    value = type == GgufType::kF32   ? load<float>(from)
            : type == GgufType::kF16 ? from_half(from)
                                     : to_float(load<BFloat16>(from));
    from += bytes;
  }
}

}  // namespace hybrid_trainer
