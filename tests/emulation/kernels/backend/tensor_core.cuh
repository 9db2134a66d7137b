#pragma once

// CPU version of the product's header of this name, with the same fragments in each lane.

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "hybrid_trainer/core/dtype.h"
#include "kernels/backend/elements.cuh"
#include "tests/emulation/async_copies.h"
#include "tests/emulation/device_code.h"

namespace hybrid_trainer::emulation {

/// Number of shared memory passes of all load_matrices beyond one per matrix.
std::int64_t& bank_conflicts();

/// Number of all warp-wide multiply_adds.
std::int64_t& multiply_adds();

/// Throws Error if `at` is not a multiple of 16 bytes.
void require_aligned(std::uintptr_t at, const char* what);

/// Collects the row addresses of all lanes and counts bank conflicts.
Exchanged<const std::uint16_t*> matrix_rows(std::uintptr_t row);

inline float element(std::uint32_t pair, int index) {
  return to_float(BFloat16{static_cast<std::uint16_t>(pair >> (16 * index))});
}

}  // namespace hybrid_trainer::emulation

namespace hybrid_trainer::kernels::cuda {

using SharedAddress = std::uintptr_t;
inline SharedAddress shared_address(const void* at) { return reinterpret_cast<SharedAddress>(at); }

inline void multiply_add(float (&sums)[4], const std::uint32_t (&left)[4], std::uint32_t right_low,
                         std::uint32_t right_high) {
  struct Fragments {
    std::array<std::uint32_t, 4> left;
    std::array<std::uint32_t, 2> right;
  };
  const Fragments mine{{left[0], left[1], left[2], left[3]}, {right_low, right_high}};
  const auto all = emulation::exchange(0xFFFFFFFFu, mine);
  if (emulation::lane() == 0) ++emulation::multiply_adds();
  const int g = emulation::lane() / 4, t = emulation::lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + i / 2 * 8, column = 2 * t + i % 2;
    float sum = 0;
    for (int k = 0; k < 16; ++k) {
      const auto of_row = static_cast<std::size_t>(k / 8 * 2 + row / 8);
      const auto of_column = static_cast<std::size_t>(k / 8);
      sum += emulation::element(all.of(row % 8 * 4 + k % 8 / 2).left[of_row], k % 2) *
             emulation::element(all.of(column * 4 + k % 8 / 2).right[of_column], k % 2);
    }
    sums[i] += sum;
  }
}

inline void load_matrices(std::uint32_t (&to)[4], SharedAddress row) {
  const auto rows = emulation::matrix_rows(row);
  const int g = emulation::lane() / 4, t = emulation::lane() % 4;
  for (int i = 0; i < 4; ++i) std::memcpy(&to[i], rows.of(8 * i + g) + 2 * t, sizeof(to[i]));
}

inline void load_matrices_transposed(std::uint32_t (&to)[4], SharedAddress row) {
  const auto rows = emulation::matrix_rows(row);
  const int g = emulation::lane() / 4, t = emulation::lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t low = rows.of(8 * i + 2 * t)[g], high = rows.of(8 * i + 2 * t + 1)[g];
    to[i] = high << 16 | low;
  }
}

inline void copy_async(SharedAddress to, const void* from, bool valid) {
  emulation::require_aligned(to, "copy_async: the destination");
  emulation::require_aligned(shared_address(from), "copy_async: the source");
  emulation::async_copies().copy(reinterpret_cast<void*>(to), valid ? from : nullptr);
}
inline void commit_copies() { emulation::async_copies().commit(); }
template <int kGroups>
void wait_for_copies() {
  emulation::async_copies().wait(kGroups);
}

inline float fast_exp2(float x) { return x < -126 ? 0.0f : std::exp2(x); }

inline int hidden(int x) { return x; }

inline std::uint32_t pack_pair(float low, float high) {
  return static_cast<std::uint32_t>(to_bfloat16(high).bits) << 16 | to_bfloat16(low).bits;
}

}  // namespace hybrid_trainer::kernels::cuda
