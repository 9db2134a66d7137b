#include <cstring>

#include "kernels/backend/backend.h"
#include "kernels/backend/vector_math.h"
#include "kernels/quantized/four_bit_levels.h"
#include "kernels/quantized/quantization.h"
#include "kernels/quantized/quantized_block_cpu.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

/// Returns level·scale + offset, rounded twice even if the caller uses fused multiply-add.
[[gnu::noinline]] float magnitude(float level, float scale, float offset) {
  return level * scale + offset;
}

/// Writes each number's code: the number of scaled midpoints below it, for a normal scale.
inline void find_places(std::uint8_t* places, const float* x, int n, float scale) {
  float bounds[kFourBitMiddles.size()];
  for (std::size_t k = 0; k < kFourBitMiddles.size(); ++k) bounds[k] = kFourBitMiddles[k] * scale;
#pragma omp simd
  for (int i = 0; i < n; ++i) {
    int place = 0;
    for (const float bound : bounds) place += x[i] > bound ? 1 : 0;
    places[i] = static_cast<std::uint8_t>(place);
  }
}

constexpr int kCodesOfWord = 8;  // codes in a 32-bit word

/// Number of codes in a register of words: one or two blocks, or half a block.
template <int kLanes>
constexpr std::int64_t kAtOnce = kCodesOfWord* kLanes;

template <int kLanes>
constexpr std::int64_t padded(std::int64_t inputs) {
  return (inputs + kAtOnce<kLanes> - 1) / kAtOnce<kLanes> * kAtOnce<kLanes>;
}

/// Converts x to f32 with padded rows, ordered by the half bytes of the words of codes.
template <int kLanes, class T>
void arrange_words(const T* x, std::int64_t rows, std::int64_t inputs, float* arranged) {
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t at = 0; at < padded<kLanes>(inputs); at += kAtOnce<kLanes>) {
      for (int k = 0; k < kCodesOfWord; ++k) {
        for (int lane = 0; lane < kLanes; ++lane, ++arranged) {
          // The first of two numbers is in the upper half of their byte.
          const std::int64_t i = at + 2 * (4 * lane + k / 2) + (k % 2 == 0 ? 1 : 0);
          *arranged = i < inputs ? load(x + n * inputs + i) : 0.0f;
        }
      }
    }
  }
}

struct FourBitProduct {
  const std::uint8_t *codes, *levels;  // levels may be null
  const float *scales, *of_codes;
  float offset;
  const float* x;  // arranged
  std::int64_t rows, inputs, stride;

  float size_of_block(std::int64_t block) const {
    return levels == nullptr
               ? scales[block]
               : kFourBitLevels[levels[block]] * scales[block / kFourBitLevelBlock] + offset;
  }
};

/// The values of the 16 codes in registers. Selects values by codes.
template <int kLanes>
struct CodeTable {
  typedef float Floats __attribute__((vector_size(4 * kLanes)));
  typedef std::uint32_t Words __attribute__((vector_size(4 * kLanes)));
  static constexpr int kParts = 16 / kLanes;
  Floats parts[kParts];

  explicit CodeTable(const float* of_codes) { std::memcpy(parts, of_codes, sizeof parts); }
  void pick(Floats& picked, const Words& words) const {
    if constexpr (kParts == 1) {
      picked = __builtin_shuffle(parts[0], words);
    } else if constexpr (kParts == 2) {
      picked = __builtin_shuffle(parts[0], parts[1], words);
    } else {
      float values[16], found[kLanes];
      std::uint32_t places[kLanes];
      std::memcpy(values, parts, sizeof values);
      std::memcpy(places, &words, sizeof places);
      for (int i = 0; i < kLanes; ++i) found[i] = values[places[i] & 15];
      std::memcpy(&picked, found, sizeof found);
    }
  }
};

/// Sets `sizes` to the magnitude of each lane's block, from `block` on; 0 beyond the row.
template <int kLanes, class Floats>
inline void sizes_of_lanes(Floats& sizes, const FourBitProduct& of, std::int64_t block,
                           std::int64_t blocks_left) {
  constexpr int kLanesOfBlock = kFourBitBlock / kCodesOfWord;
  const float first = of.size_of_block(block);
  sizes = Floats{} + first;
  if constexpr (kLanes > kLanesOfBlock) {
    float lanes[kLanes];
    const float second = blocks_left > 1 ? of.size_of_block(block + 1) : 0;
    for (int i = 0; i < kLanes; ++i) lanes[i] = i < kLanesOfBlock ? first : second;
    std::memcpy(&sizes, lanes, sizeof sizes);
  }
}

/// sums = a row of w times kRows rows of x. Lanes are added in order: bits depend only on kLanes.
template <int kLanes, int kRows>
inline void multiply_row(float (&sums)[kRows], const float* const (&x)[kRows],
                         const FourBitProduct& of, const CodeTable<kLanes>& table,
                         std::int64_t row) {
  using Floats = typename CodeTable<kLanes>::Floats;
  constexpr std::int64_t kBytes = 4 * kLanes;
  Floats parts[kRows] = {};
  const std::int64_t first = row * of.inputs / kFourBitBlock;
  const std::uint8_t* const codes = of.codes + row * of.inputs / 2;
  for (std::int64_t at = 0; at < of.inputs; at += kAtOnce<kLanes>) {
    typename CodeTable<kLanes>::Words words{};
    const std::int64_t left = (of.inputs - at) / 2;
    if (left >= kBytes) {
      std::memcpy(&words, codes + at / 2, kBytes);
    } else {
      std::memcpy(&words, codes + at / 2, std::min(kBytes, kFourBitBlock / 2));
    }
    Floats sizes, of_chunk[kRows] = {};
    sizes_of_lanes<kLanes>(sizes, of, first + at / kFourBitBlock, (of.inputs - at) / kFourBitBlock);
#pragma GCC unroll 8
    for (int k = 0; k < kCodesOfWord; ++k) {
      Floats values;
      table.pick(values, words >> (4 * k));
#pragma GCC unroll 4
      for (int n = 0; n < kRows; ++n) {
        Floats numbers;
        std::memcpy(&numbers, x[n] + at + k * kLanes, sizeof numbers);
        of_chunk[n] += values * numbers;
      }
    }
#pragma GCC unroll 4
    for (int n = 0; n < kRows; ++n) parts[n] += sizes * of_chunk[n];
  }
  for (int n = 0; n < kRows; ++n) {
    float lanes[kLanes];
    std::memcpy(lanes, &parts[n], sizeof lanes);
    sums[n] = 0;
    for (const float lane : lanes) sums[n] += lane;
  }
}

/// Calls write(row of x, row of w, sum) for rows [begin, end) of w.
template <int kLanes, int kRows, class Write>
inline void multiply_rows(const FourBitProduct& of, std::int64_t begin, std::int64_t end,
                          const Write& write) {
  const CodeTable<kLanes> table(of.of_codes);
  for (std::int64_t o = begin; o < end; ++o) {
    for (std::int64_t first = 0; first < of.rows; first += kRows) {
      const float* x[kRows];
      for (std::int64_t n = 0; n < kRows; ++n)
        x[n] = of.x + std::min(first + n, of.rows - 1) * of.stride;
      float sums[kRows];
      multiply_row<kLanes>(sums, x, of, table, o);
      for (std::int64_t n = 0; n < std::min<std::int64_t>(kRows, of.rows - first); ++n)
        write(first + n, o, sums[n]);
    }
  }
}

}  // namespace

void dequantize_four_bit(const Tensor& values, const FourBitTensors& from, const Stream&) {
  const std::uint8_t* const codes = from.codes.data<std::uint8_t>();
  const std::uint8_t* const levels = optional_data<std::uint8_t>(from.levels);
  const float* const of_codes = four_bit_values(from.type).data();
  const float *const scales = from.scales.data<float>(), offset = from.offset;
  const std::int64_t count = values.elements();
  visit_real(values.dtype(), [&]<class T>(T) {
    auto* const to = values.data<T>();
    const std::int64_t blocks = (count + kFourBitBlock - 1) / kFourBitBlock;
    for_each_row(blocks, kFourBitBlock, [=](std::int64_t block) {
      const float size = levels == nullptr ? scales[block]
                                           : magnitude(kFourBitLevels[levels[block]],
                                                       scales[block / kFourBitLevelBlock], offset);
      float value[16];
      for (std::size_t code = 0; code < 16; ++code) value[code] = of_codes[code] * size;
      const std::int64_t first = block * kFourBitBlock,
                         last = std::min(count, first + kFourBitBlock);
      for (std::int64_t i = first; i < last; ++i)
        store(to + i, value[codes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15]);
    });
  });
}

void quantize_four_bit(const FourBitTensors& to, const Tensor& values, const Stream&) {
  std::uint8_t* const codes = to.codes.data<std::uint8_t>();
  float* const scales = to.scales.data<float>();
  const float* const x = values.data<float>();
  const std::int64_t count = values.elements();
  const std::int64_t blocks = (count + kFourBitBlock - 1) / kFourBitBlock;
  for_each_row(blocks, kFourBitBlock, [=](std::int64_t block) {
    const std::int64_t first = block * kFourBitBlock;
    const int n = static_cast<int>(std::min(kFourBitBlock, count - first));
    const float scale = scales[block] = scale_of(x + first, n);
    std::uint8_t places[kFourBitBlock];
    std::fill_n(places, kFourBitBlock, std::uint8_t{kFourBitZero});
    if (scale > 0) find_places(places, x + first, n, scale);
    for (int i = 0; i < n; i += 2)
      codes[(first + i) / 2] = static_cast<std::uint8_t>(places[i] << 4 | places[i + 1]);
  });
}

void four_bit_linear(const Tensor& y, const Tensor& x, const FourBitRows& w, const Tensor& bias,
                     const Tensor& residual, const Stream& stream) {
  const std::int64_t inputs = x.size(1), outputs = y.size(1);
  const Tensor arranged = empty_workspace(x.size(0) * padded<16>(inputs), DType::kF32, stream);
  if (simulated(stream)) return;
  const FourBitTensors& from = w.tensors;
  FourBitProduct of{.codes = from.codes.data<std::uint8_t>(),
                    .levels = optional_data<std::uint8_t>(from.levels),
                    .scales = from.scales.data<float>(),
                    .of_codes = four_bit_values(from.type).data(),
                    .offset = from.offset,
                    .x = arranged.data<float>(),
                    .rows = x.size(0),
                    .inputs = inputs,
                    .stride = inputs};
  const float* const added = bias ? bias.data<float>() + w.first : nullptr;
  visit_real(x.dtype(), [&]<class T>(T) {
    const T* const more = residual ? residual.data<T>() + w.first : nullptr;
    T* const to = y.data<T>() + w.first;
    const auto write = [=](std::int64_t n, std::int64_t o, float sum) {
      const std::int64_t at = n * outputs + o;
      if (added != nullptr) sum += added[o];
      store(to + at, more != nullptr ? sum + load(more + at) : sum);
    };
    with_lanes([&](auto lanes) {
      arrange_words<lanes>(x.data<T>(), of.rows, inputs, arranged.data<float>());
      of.stride = padded<lanes>(inputs);
      parallel_rows(w.count, inputs, [=](std::int64_t begin, std::int64_t end) {
        if (of.rows == 1) return multiply_rows<lanes, 1>(of, begin, end, write);
        multiply_rows<lanes, 4>(of, begin, end, write);
      });
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
