#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "hybrid_trainer/kernels/quantization.h"

namespace hybrid_trainer::kernels {

constexpr int kCodes = 256;
constexpr int kDecades = 7;

/// Bits of a map's tree, and the place of its 0 among all its values in ascending order.
constexpr int tree_width(QuantizationMap map) { return map == QuantizationMap::kSigned ? 7 : 8; }
constexpr int zero_place(QuantizationMap map) { return map == QuantizationMap::kSigned ? 127 : 0; }
/// Trees have seven decades: the lowest bit pattern of a width is 1 << (width - 7).
constexpr int tree_bits(QuantizationMap map, int steps_from_zero) {
  return steps_from_zero + (1 << (tree_width(map) - kDecades)) - 1;
}
constexpr int code_of(QuantizationMap map, int place) {
  return (place - zero_place(map)) & (kCodes - 1);
}

/// Dettmers' dynamic tree: `bits` of `width`, read as leading zeros, a one and a fraction of b
/// bits, stands for 10^-zeros · (0.1 + 0.9 · (fraction + 1/2) / 2^b).
constexpr double tree_value(unsigned int bits, int width) {
  const int fraction_bits = std::bit_width(bits) - 1;
  const double intervals = 1u << fraction_bits;
  double value = 0.1 + 0.9 * (bits - intervals + 0.5) / intervals;
  for (int zeros = width - 1 - fraction_bits; zeros > 0; --zeros) value /= 10;
  return value;
}

/// The values of a map's codes, and the bounds between them.
struct QuantizationTable {
  float values[kCodes] = {};      // of each code
  float bounds[kCodes + 1] = {};  // place p holds what is in (bounds[p], bounds[p + 1]]
};

/// Signed: a sign and a tree of seven bits, with 1 for the unused pattern, -0. Unsigned: the sign
/// bit becomes one more bit of fraction, and 1 follows the tree's last pattern.
constexpr QuantizationTable make_quantization_table(QuantizationMap map) {
  QuantizationTable table;
  for (int place = 0; place < kCodes - 1; ++place) {
    const int steps = place - zero_place(map);
    const int bits = tree_bits(map, steps < 0 ? -steps : steps);
    const double size = tree_value(static_cast<unsigned int>(bits > 0 ? bits : 1), tree_width(map));
    const double value = steps == 0 ? 0 : steps < 0 ? -size : size;
    table.values[code_of(map, place)] = static_cast<float>(value);
  }
  table.values[code_of(map, kCodes - 1)] = 1;
  for (int place = 1; place < kCodes; ++place) {
    const double sum = static_cast<double>(table.values[code_of(map, place - 1)]) +
                       static_cast<double>(table.values[code_of(map, place)]);
    table.bounds[place] = static_cast<float>(sum / 2);
  }
  if (map == QuantizationMap::kUnsigned) table.bounds[1] = 0;  // positive values stay positive
  table.bounds[0] = -std::numeric_limits<float>::infinity();
  table.bounds[kCodes] = std::numeric_limits<float>::infinity();
  return table;
}

/// The tree's bits, as a real number, for a magnitude from 0 to 1. Each decade is a line, steeper
/// than the one above it, so the result is the minimum over all lines.
template <int kWidth, int kZeros = kDecades - 1>
constexpr float bits_near(float magnitude) {
  constexpr float kIntervals = 1 << (kWidth - 1 - kZeros);
  constexpr float kSlope = [] {
    double slope = static_cast<double>(kIntervals) / 0.9;
    for (int zeros = kZeros; zeros > 0; --zeros) slope *= 10;
    return static_cast<float>(slope);
  }();
  const float line = kSlope * magnitude + kIntervals * (8.0f / 9.0f);
  if constexpr (kZeros == 0)
    return line;
  else {
    const float above = bits_near<kWidth, kZeros - 1>(magnitude);
    return line < above ? line : above;
  }
}

/// The place of x in a block whose largest magnitude is `reach`, a normal number. Rounding errors
/// do not matter, since the table's bounds decide.
template <QuantizationMap kMap>
constexpr int place_of(float x, float reach, float inverse_reach, const float* bounds) {
  const float magnitude = (x < 0 ? -x : x) * inverse_reach;
  const int steps = static_cast<int>(bits_near<tree_width(kMap)>(magnitude)) - tree_bits(kMap, 0);
  const int guess = zero_place(kMap) + (x < 0 ? -steps : steps);
  const int near = guess < 0 ? 0 : guess;  // at most one off
  return near - 1 + (x > bounds[near] * reach) + (x > bounds[near + 1] * reach);
}

}  // namespace hybrid_trainer::kernels
