#include <cstring>
#include <utility>

#include "kernels/backend/parallel.h"
#include "kernels/convolution/convolution_cpu.h"
#include "kernels/products/tiles_cpu.h"
#include "src/core/machine.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

constexpr std::int64_t kAhead = 8;  // places prefetched into the L1 cache

/// Sums a tile while keeping all its rows and vectors in registers.
template <int kLanes, int kRows, int kVectors, TileSteps kSteps>
struct SumFloats {
  const WindowTile* tile;
  void operator()() const {
    typedef float Floats [[gnu::vector_size(4 * kLanes)]];
    const WindowTile& t = *tile;
    Floats sums[kRows][kVectors] = {};
    if (t.start != nullptr) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v)
          std::memcpy(&sums[r][v], t.start + kLanes * v, sizeof(Floats));
      }
    }
    for (std::int64_t run = 0; run < t.run_count; ++run) {
      const float* const a = t.a + t.runs[run].offset;
      const float* b = t.b + t.runs[run].first * t.b_step;
      const float* rows[kRows];
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) rows[r] = kSteps == TileSteps::kRows ? a + r * t.step : a + r;
      const std::int64_t count = t.runs[run].count;
      const std::int64_t step = kSteps == TileSteps::kRows ? 1 : t.step;
      for (std::int64_t k = 0, at = 0; k < count; ++k, at += step, b += t.b_step) {
        Floats right[kVectors];
        if constexpr (kSteps == TileSteps::kPlaces)
          __builtin_prefetch(rows[0] + at + kAhead * step);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) std::memcpy(&right[v], b + kLanes * v, sizeof(Floats));
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const float left = rows[r][at];
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) sums[r][v] += left * right[v];
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        float* const to = t.sums + kLanes * (r * kVectors + v);
        Floats before = {};
        if (t.adds) std::memcpy(&before, to, sizeof before);
        before += sums[r][v];
        std::memcpy(to, &before, sizeof before);
      }
    }
  }
};

constexpr int kMaxRows512 = 12, kMaxRows256 = 6, kMaxRows128 = 4;

template <int kLanes, int kRows, int kVectors, TileSteps kSteps>
void sum_floats(const WindowTile& tile) {
  const SumFloats<kLanes, kRows, kVectors, kSteps> body{&tile};
  if constexpr (kSanitized || kLanes == 4) {
    run_baseline(body);
  } else if constexpr (kLanes == 8) {
    run_avx2(body);
  } else {
    run_avx512(body);
  }
}

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")

template <int kRows, int kVectors, TileSteps kSteps>
void sum_pairs(const WindowTile& t) {
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = t.start != nullptr ? _mm512_loadu_ps(t.start + 16 * v) : _mm512_setzero_ps();
  }
  for (std::int64_t run = 0; run < t.run_count; ++run) {
    const float* const a = t.a + t.runs[run].offset;
    const float* b = t.b + t.runs[run].first * t.b_step;
    const std::int64_t count = t.runs[run].count;
    for (std::int64_t k = 0; k < count; ++k, b += t.b_step) {
      if constexpr (kSteps == TileSteps::kPlaces) __builtin_prefetch(a + (k + kAhead) * t.step);
      __m512bh right[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        right[v] = reinterpret_cast<__m512bh>(_mm512_loadu_ps(b + 16 * v));
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const float* const word =
            kSteps == TileSteps::kRows ? a + r * t.step + k : a + k * t.step + r;
        const auto left = reinterpret_cast<__m512bh>(_mm512_set1_ps(*word));
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v)
          sums[r][v] = _mm512_dpbf16_ps(sums[r][v], left, right[v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* const to = t.sums + 16 * (r * kVectors + v);
      _mm512_storeu_ps(to, t.adds ? _mm512_add_ps(_mm512_loadu_ps(to), sums[r][v]) : sums[r][v]);
    }
  }
}

#pragma GCC pop_options

template <int kCount>
using FunctionTable = std::array<WindowTiles::Function, 2 * kCount>;

template <int kLanes, TileSteps kSteps, int... kIndices>
constexpr FunctionTable<sizeof...(kIndices) / 2> float_table(
    std::integer_sequence<int, kIndices...>) {
  return {sum_floats<kLanes, kIndices / 2 + 1, kIndices % 2 + 1, kSteps>...};
}
template <TileSteps kSteps, int... kIndices>
constexpr FunctionTable<sizeof...(kIndices) / 2> pair_table(
    std::integer_sequence<int, kIndices...>) {
  return {sum_pairs<kIndices / 2 + 1, kIndices % 2 + 1, kSteps>...};
}

template <int kLanes, int kRows, TileSteps kSteps>
constexpr auto kFloatTable =
    float_table<kLanes, kSteps>(std::make_integer_sequence<int, 2 * kRows>());
template <TileSteps kSteps>
constexpr auto kPairTable = pair_table<kSteps>(std::make_integer_sequence<int, 2 * kMaxRows512>());

template <TileSteps kSteps>
const WindowTiles::Function* functions_of(bool pairs) {
  if (pairs) return kPairTable<kSteps>.data();
  switch (instruction_set()) {
    case InstructionSet::kAvx512: return kFloatTable<16, kMaxRows512, kSteps>.data();
    case InstructionSet::kAvx2: return kFloatTable<8, kMaxRows256, kSteps>.data();
    case InstructionSet::kBaseline: break;
  }
  return kFloatTable<4, kMaxRows128, kSteps>.data();
}

}  // namespace

WindowTiles::WindowTiles(bool pairs, TileSteps steps)
    : lanes_(4),
      max_rows_(kMaxRows128),
      functions_(steps == TileSteps::kRows ? functions_of<TileSteps::kRows>(pairs)
                                           : functions_of<TileSteps::kPlaces>(pairs)) {
  if (instruction_set() == InstructionSet::kAvx2) lanes_ = 8, max_rows_ = kMaxRows256;
  if (instruction_set() == InstructionSet::kAvx512) lanes_ = 16, max_rows_ = kMaxRows512;
}

bool multiplies_pairs() {
  return multiplies_bfloat16() && instruction_set() == InstructionSet::kAvx512;
}

}  // namespace hybrid_trainer::kernels::cpu
