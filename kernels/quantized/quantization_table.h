#pragma once

#include <limits>
#include <type_traits>

#include "kernels/quantized/quantization.h"

namespace hybrid_trainer::kernels {

constexpr int kCodes = 256;
constexpr int kDecades = 7;

/// Return the number of bits of a map's tree, and the index of 0 among the ascending values.
constexpr int tree_width(QuantizationMap map) { return map == QuantizationMap::kSigned ? 7 : 8; }
constexpr int zero_place(QuantizationMap map) { return map == QuantizationMap::kSigned ? 127 : 0; }
/// Returns the bits in the tree of the value that is `steps_from_zero` steps above 0. The tree has
/// seven decades, so that its lowest bit pattern is 1 << (width - 7).
constexpr int tree_bits(QuantizationMap map, int steps_from_zero) {
  return steps_from_zero + (1 << (tree_width(map) - kDecades)) - 1;
}
constexpr int code_of(QuantizationMap map, int place) {
  return (place - zero_place(map)) & (kCodes - 1);
}

/// Returns the lower bound of the interval of `bits` in Dettmers' dynamic tree. `bits` has `width`
/// bits: leading zeros, a one, and a fraction of b bits. It represents 10^-zeros · (0.1 + 0.9 ·
/// (fraction + 1/2) / 2^b). Decades are divided into equal intervals with their values at the
/// centers, except that the only value of the lowest decade is used from half that value on.
constexpr double tree_bound(unsigned int bits, int width) {
  const int fraction_bits = std::bit_width(bits) - 1;
  const double intervals = 1u << fraction_bits;
  double bound = bits == 1 ? 0.275 : 0.1 + 0.9 * (bits - intervals) / intervals;
  for (int zeros = width - 1 - fraction_bits; zeros > 0; --zeros) bound /= 10;
  return bound;
}

/// One linear function per decade, indexed by the exponent of its argument modulo 8.
struct DecadeLines {
  alignas(32) float slopes[kDecades + 1] = {};
  alignas(32) float starts[kDecades + 1] = {};
};

/// make_value_lines returns one f32 line per decade, a function of the steps from zero plus
/// value_shift, and one line from 0 to the value at the last code: 1, or -1 at byte -128 of the
/// signed map.
constexpr float value_shift(QuantizationMap map) {
  return map == QuantizationMap::kSigned ? 0.5f : 1.0f;
}
constexpr DecadeLines make_value_lines(QuantizationMap map) {
  DecadeLines lines;
  const auto set = [&](int exponent, double slope, double start) {
    lines.slopes[(127 + exponent) & kDecades] = static_cast<float>(slope);
    lines.starts[(127 + exponent) & kDecades] = static_cast<float>(start);
  };
  const double beyond = 0.5 - value_shift(map) + tree_bits(map, 0);
  double power = 1;
  for (int exponent = tree_width(map) - 1; exponent >= tree_width(map) - kDecades; --exponent) {
    const double slope = power * 0.9 / (1 << exponent);
    set(exponent, slope, beyond * slope - power * 0.8);
    power /= 10;
  }
  if (map == QuantizationMap::kSigned)
    set(kDecades, -1.0 / 128, 0.5 / 128);
  else
    set(0, 1.0 / 255, -1.0 / 255);
  return lines;
}
/// Evaluates the line at `along`, exact in double, so that it is rounded once.
constexpr float value_of(const DecadeLines& lines, float along) {
  const std::uint32_t decade = (std::bit_cast<std::uint32_t>(along) >> 23) & kDecades;
  return static_cast<float>(static_cast<double>(lines.slopes[decade]) * along +
                            static_cast<double>(lines.starts[decade]));
}

/// Calls function(std::integral_constant<QuantizationMap, map>()).
template <class Function>
void visit_map(QuantizationMap map, const Function& function) {
  if (map == QuantizationMap::kSigned) {
    function(std::integral_constant<QuantizationMap, QuantizationMap::kSigned>());
  } else {
    function(std::integral_constant<QuantizationMap, QuantizationMap::kUnsigned>());
  }
}

/// Values of a map's codes, and the bounds between them.
struct QuantizationTable {
  float values[kCodes] = {};      // indexed by code
  float bounds[kCodes + 1] = {};  // place p covers (bounds[p], bounds[p + 1]]
};

/// The signed map has a sign and a tree of seven bits; the unused pattern, -0, represents 1. In the
/// unsigned map the sign bit becomes one more fraction bit, and 1 follows the tree's last pattern.
constexpr QuantizationTable make_quantization_table(QuantizationMap map) {
  QuantizationTable table;
  const DecadeLines lines = make_value_lines(map);
  for (int place = 0; place < kCodes; ++place) {
    const int steps = place - zero_place(map);
    const float size =
        value_of(lines, static_cast<float>(steps < 0 ? -steps : steps) + value_shift(map));
    table.values[code_of(map, place)] = steps < 0 ? -size : size;
  }
  table.values[code_of(map, kCodes - 1)] = 1;
  for (int place = 1; place < kCodes - 1; ++place) {  // between adjacent places
    const int steps = place - zero_place(map);
    const auto bits = static_cast<unsigned int>(tree_bits(map, steps > 0 ? steps : 1 - steps));
    const auto bound = static_cast<float>(tree_bound(bits, tree_width(map)));
    table.bounds[place] = steps > 0 ? bound : -bound;
  }
  table.bounds[kCodes - 1] = (table.values[code_of(map, kCodes - 2)] + 1) / 2;
  if (map == QuantizationMap::kUnsigned) table.bounds[1] = 0;  // positive values stay positive
  table.bounds[0] = -std::numeric_limits<float>::infinity();
  table.bounds[kCodes] = std::numeric_limits<float>::infinity();
  return table;
}

/// Returns the tree's bits, as a real number, for a magnitude: the minimum over the decades' lines.
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

/// Returns the place of x in a block whose largest magnitude is `reach`, a normal number. Rounding
/// errors of the guess do not matter, because the table's bounds decide.
template <QuantizationMap kMap>
constexpr int place_of(float x, float reach, float inverse_reach, const float* bounds) {
  const float magnitude = (x < 0 ? -x : x) * inverse_reach;
  const int steps = static_cast<int>(bits_near<tree_width(kMap)>(magnitude)) - tree_bits(kMap, 0);
  const int guess = zero_place(kMap) + (x < 0 ? -steps : steps);
  const int near = guess < 0 ? 0 : guess;  // wrong by at most one
  return near - 1 + (x > bounds[near] * reach) + (x > bounds[near + 1] * reach);
}

}  // namespace hybrid_trainer::kernels
