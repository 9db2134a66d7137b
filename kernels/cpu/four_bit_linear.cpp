#include "hybrid_trainer/kernels/four_bit_linear.h"

#include <algorithm>
#include <cstring>

#include "kernels/backend.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/four_bit_levels.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

constexpr std::int64_t kHalfBlock = kFourBitBlock / 2;  // bytes of codes, and numbers of a kind

/// x in f32; of each block first the even numbers, whose codes are upper halves of bytes, then the odd.
template <class T>
void arrange_blocks(const T* x, std::int64_t elements, float* arranged) {
  for (std::int64_t block = 0; block < elements; block += kFourBitBlock) {
    for (std::int64_t i = 0; i < kHalfBlock; ++i) {
      arranged[block + i] = load(x + block + 2 * i);
      arranged[block + kHalfBlock + i] = load(x + block + 2 * i + 1);
    }
  }
}

/// What the products of one call read.
struct FourBitProduct {
  const std::uint8_t *codes, *levels;  // levels may be null
  const float *scales, *of_codes;
  float offset;
  const float* x;  // arranged
  std::int64_t rows, inputs;

  /// What codes of a block are multiplied by.
  float size_of_block(std::int64_t block) const {
    return levels == nullptr
               ? scales[block]
               : kFourBitLevels[levels[block]] * scales[block / kFourBitLevelBlock] + offset;
  }
};

/// The values of the 16 codes of a block in registers, and those of codes picked out of them.
template <int kLanes>
struct CodeTable {
  typedef float Floats __attribute__((vector_size(4 * kLanes)));
  typedef std::int32_t Indices __attribute__((vector_size(4 * kLanes)));
  static constexpr int kParts = 16 / kLanes;
  Floats parts[kParts];

  CodeTable(const float* of_codes, float size) {
    for (int i = 0; i < kParts; ++i) {
      std::memcpy(&parts[i], of_codes + i * kLanes, sizeof(Floats));
      parts[i] *= size;
    }
  }
  void pick(Floats& picked, const Indices& codes) const {
    if constexpr (kParts == 1) {
      picked = __builtin_shuffle(parts[0], codes);
    } else if constexpr (kParts == 2) {
      picked = __builtin_shuffle(parts[0], parts[1], codes);
    } else {
      float values[16], found[kLanes];
      std::int32_t places[kLanes];
      std::memcpy(values, parts, sizeof values);
      std::memcpy(places, &codes, sizeof places);
      for (int i = 0; i < kLanes; ++i) found[i] = values[places[i]];
      std::memcpy(&picked, found, sizeof found);
    }
  }
};

/// sums = one row of w times kRows rows of x, whose first is at `x`. Lanes take every kLanes-th number
/// and are added up in order, so the bits depend on kLanes alone.
template <int kLanes, int kRows>
inline void multiply_row(float (&sums)[kRows], const float* const (&x)[kRows],
                         const FourBitProduct& of, std::int64_t row) {
  using Table = CodeTable<kLanes>;
  typedef std::uint8_t Bytes [[gnu::vector_size(kLanes)]];
  typename Table::Floats parts[kRows] = {};
  const std::int64_t first = row * of.inputs / kFourBitBlock;
  for (std::int64_t block = 0; block < of.inputs / kFourBitBlock; ++block) {
    const Table table(of.of_codes, of.size_of_block(first + block));
    const std::uint8_t* const codes = of.codes + (first + block) * kHalfBlock;
    for (std::int64_t i = 0; i < kHalfBlock; i += kLanes) {
      Bytes bytes;
      std::memcpy(&bytes, codes + i, sizeof bytes);
      const auto both = __builtin_convertvector(bytes, typename Table::Indices);
      typename Table::Floats even, odd;
      table.pick(even, both >> 4);
      table.pick(odd, both & 15);
      const std::int64_t at = block * kFourBitBlock + i;
#pragma GCC unroll 4
      for (int n = 0; n < kRows; ++n) {
        typename Table::Floats of_even, of_odd;
        std::memcpy(&of_even, x[n] + at, sizeof of_even);
        std::memcpy(&of_odd, x[n] + at + kHalfBlock, sizeof of_odd);
        parts[n] += even * of_even + odd * of_odd;
      }
    }
  }
  for (int n = 0; n < kRows; ++n) {
    float lanes[kLanes];
    std::memcpy(lanes, &parts[n], sizeof lanes);
    sums[n] = 0;
    for (const float lane : lanes) sums[n] += lane;
  }
}

/// write(row of x, row of w, sum) for rows [begin, end) of w.
template <int kLanes, int kRows, class Write>
inline void multiply_rows(const FourBitProduct& of, std::int64_t begin, std::int64_t end,
                          const Write& write) {
  for (std::int64_t o = begin; o < end; ++o) {
    for (std::int64_t first = 0; first < of.rows; first += kRows) {
      const float* x[kRows];
      for (std::int64_t n = 0; n < kRows; ++n)
        x[n] = of.x + std::min(first + n, of.rows - 1) * of.inputs;
      float sums[kRows];
      multiply_row<kLanes>(sums, x, of, o);
      for (std::int64_t n = 0; n < std::min<std::int64_t>(kRows, of.rows - first); ++n)
        write(first + n, o, sums[n]);
    }
  }
}

}  // namespace

void four_bit_linear(const Tensor& y, const Tensor& x, const FourBitRows& w, const Tensor& bias,
                     const Tensor& residual, const Stream& stream) {
  const std::int64_t inputs = x.size(1), outputs = y.size(1);
  const Tensor arranged = empty_workspace(x.elements(), DType::kF32, stream);
  if (simulated(stream)) return;
  const FourBitTensors& from = w.tensors;
  const FourBitProduct of{
      .codes = from.codes.data<std::uint8_t>(),
      .levels = from.levels.defined() ? from.levels.data<std::uint8_t>() : nullptr,
      .scales = from.scales.data<float>(),
      .of_codes = four_bit_values(from.type).data(),
      .offset = from.offset,
      .x = arranged.data<float>(),
      .rows = x.size(0),
      .inputs = inputs};
  const float* const added = bias ? bias.data<float>() + w.first : nullptr;
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    arrange_blocks(x.data<T>(), x.elements(), arranged.data<float>());
    const T* const more = residual ? residual.data<T>() + w.first : nullptr;
    T* const to = y.data<T>() + w.first;
    const auto write = [=](std::int64_t n, std::int64_t o, float sum) {
      const std::int64_t at = n * outputs + o;
      if (added != nullptr) sum += added[o];
      store(to + at, more != nullptr ? sum + load(more + at) : sum);
    };
    with_lanes([&](auto lanes) {
      parallel_rows(w.count, inputs, [=](std::int64_t begin, std::int64_t end) {
        if (of.rows == 1) return multiply_rows<lanes, 1>(of, begin, end, write);
        multiply_rows<lanes, 4>(of, begin, end, write);
      });
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
