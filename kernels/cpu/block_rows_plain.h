#pragma once

#include <cmath>

#include "kernels/cpu/block_codes.h"

namespace hybrid_trainer::kernels::cpu::plain {

/// The codes of a pair of blocks.
template <BlockFormat kFormat>
void read_pair(std::uint8_t (&codes)[kChunk], const std::uint8_t* const (&blocks)[2]) {
  for (int b = 0; b < 2; ++b) {
    const std::uint8_t* const from = blocks[b] + codes_at(kFormat);
    if constexpr (kFormat == BlockFormat::kQ8_0) {
      for (int i = 0; i < 32; ++i) codes[32 * b + i] = from[i] ^ 0x80;
    } else {
      std::uint32_t bits = 0;
      if constexpr (bits_at(kFormat) >= 0)
        bits = load_bits<std::uint32_t>(blocks[b] + bits_at(kFormat));
      for (int i = 0; i < 16; ++i) {
        unsigned first = from[i] & 15, second = from[i] >> 4;
        if constexpr (kFormat == BlockFormat::kMXFP4)
          first = kMicroCodes[first], second = kMicroCodes[second];
        codes[16 * b + i] = static_cast<std::uint8_t>(first | (bits >> i & 1) << 4);
        codes[32 + 16 * b + i] = static_cast<std::uint8_t>(second | (bits >> (i + 16) & 1) << 4);
      }
    }
  }
}

/// The codes of a fourth of a superblock.
template <BlockFormat kFormat>
void read_fourth(std::uint8_t (&codes)[kChunk], const std::uint8_t* block, int fourth) {
  const std::uint8_t* const from = block + codes_at(kFormat);
  for (int i = 0; i < kChunk; ++i) {
    if constexpr (kFormat == BlockFormat::kQ6_K) {
      const std::uint8_t both = from[fourth / 2 * 64 + i];
      const unsigned four = fourth % 2 == 0 ? both & 15u : both >> 4;
      const unsigned two =
          from[128 + fourth / 2 * 32 + i % 32] >> (4 * (fourth % 2) + i / 32 * 2) & 3;
      codes[i] = static_cast<std::uint8_t>(four | two << 4);
    } else {
      const std::uint8_t both = from[32 * fourth + i % 32];
      unsigned code = i < 32 ? both & 15u : both >> 4;
      if constexpr (kFormat == BlockFormat::kQ5_K)
        code |= (block[16 + i % 32] >> (2 * fourth + i / 32) & 1) << 4;
      codes[i] = static_cast<std::uint8_t>(code);
    }
  }
}

template <BlockFormat kFormat>
void multiply_chunk(std::int32_t (&lanes)[kLanesOfChunk], const std::uint8_t (&codes)[kChunk],
                    const RoundedRow& x, std::int64_t chunk) {
  const std::int8_t* const of = x.codes + chunk * kChunk;
  for (int lane = 0; lane < kLanesOfChunk; ++lane) {
    lanes[lane] = offset_of(kFormat) == 0 ? 0 : x.offsets[chunk * kLanesOfChunk + lane];
    for (int i = 4 * lane; i < 4 * lane + 4; ++i) lanes[lane] += codes[i] * of[i];
  }
}

template <BlockFormat kFormat>
float scale_of_block(const std::uint8_t* block) {
  if constexpr (kFormat == BlockFormat::kMXFP4) return micro_scale(block[0]);
  return half_at(block);
}

/// In the order in which registers are added up.
inline float sum_of_lanes(float* lanes, int count) {
  for (int half = count / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

template <BlockFormat kFormat>
float multiply_pairs(const std::uint8_t* w, const RoundedRow& x, std::int64_t inputs) {
  float sums[kLanesOfChunk] = {}, least[2] = {};
  const auto add = [&](const std::uint8_t* first, std::int64_t pair) {
    const std::uint8_t* const blocks[2] = {first, first + kBytes<kFormat>};
    std::uint8_t codes[kChunk];
    std::int32_t lanes[kLanesOfChunk];
    read_pair<kFormat>(codes, blocks);
    multiply_chunk<kFormat>(lanes, codes, x, pair);
    float scales[2];
    for (int b = 0; b < 2; ++b) {
      scales[b] = scale_of_block<kFormat>(blocks[b]) * x.scales[4 * pair + 2 * b];
      if constexpr (has_least(kFormat))
        least[b] += half_at(blocks[b] + 2) * x.scales[4 * pair + 2 * b + 1];
    }
    for (int lane = 0; lane < kLanesOfChunk; ++lane) {
      const int block = has_halves(kFormat) ? lane / 4 % 2 : lane / 8;
      sums[lane] = std::fma(scales[block], static_cast<float>(lanes[lane]), sums[lane]);
    }
  };
  std::int64_t pair = 0;
  for (; pair < inputs / kChunk; ++pair) add(w + 2 * pair * kBytes<kFormat>, pair);
  if (inputs % kChunk != 0) add(LastPair<kFormat>(w + 2 * pair * kBytes<kFormat>).bytes, pair);
  const float sum = sum_of_lanes(sums, kLanesOfChunk);
  return has_least(kFormat) ? sum + (least[0] + least[1]) : sum;
}

template <BlockFormat kFormat>
float multiply_supers(const std::uint8_t* w, const RoundedRow& x, std::int64_t inputs) {
  constexpr bool kHasLeast = has_least(kFormat);
  float sums[kLanesOfChunk] = {}, least[4] = {};
  for (std::int64_t block = 0; block < inputs / 256; ++block, w += kBytes<kFormat>) {
    std::int32_t totals[kLanesOfChunk] = {};
    const SuperScales packed = kHasLeast ? super_scales(w) : SuperScales{};
    for (int fourth = 0; fourth < 4; ++fourth) {
      std::uint8_t codes[kChunk];
      std::int32_t lanes[kLanesOfChunk];
      read_fourth<kFormat>(codes, w, fourth);
      multiply_chunk<kFormat>(lanes, codes, x, 4 * block + fourth);
      for (int lane = 0; lane < kLanesOfChunk; ++lane) {
        const int scale =
            kHasLeast ? static_cast<int>(packed.scales >> (8 * (2 * fourth + lane / 8)) & 255)
                      : static_cast<std::int8_t>(w[192 + 4 * fourth + lane / 4]);
        totals[lane] += lanes[lane] * scale;
      }
    }
    const float scale = half_at(w + (kHasLeast ? 0 : 208)) * x.scales[block];
    for (int lane = 0; lane < kLanesOfChunk; ++lane)
      sums[lane] = std::fma(scale, static_cast<float>(totals[lane]), sums[lane]);
    if constexpr (kHasLeast) {
      const float scale_of_least = half_at(w + 2) * x.scales[block];
      for (int lane = 0; lane < 4; ++lane) {
        std::int32_t total = 0;
        for (int i = 2 * lane; i < 2 * lane + 2; ++i)
          total += static_cast<int>(packed.leasts >> (8 * i) & 255) * x.sums[8 * block + i];
        least[lane] = std::fma(scale_of_least, static_cast<float>(total), least[lane]);
      }
    }
  }
  const float sum = sum_of_lanes(sums, kLanesOfChunk);
  return kHasLeast ? sum - sum_of_lanes(least, 4) : sum;
}

/// sums = a row of w times kRows rows of x.
template <BlockFormat kFormat, int kRows>
void multiply_row(float* sums, const std::uint8_t* w, const RoundedRow* x, std::int64_t inputs) {
  for (int n = 0; n < kRows; ++n) {
    if constexpr (is_super(kFormat)) {
      sums[n] = multiply_supers<kFormat>(w, x[n], inputs);
    } else {
      sums[n] = multiply_pairs<kFormat>(w, x[n], inputs);
    }
  }
}

}  // namespace hybrid_trainer::kernels::cpu::plain
