// Compares the emulated tensor core with plain loops and the element positions in the PTX ISA.

#include "kernels/backend/tensor_core.cuh"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/emulation/block.h"

namespace hybrid_trainer::emulation {
namespace {

using namespace kernels::cuda;
using Matrix = std::vector<BFloat16>;

constexpr Grid kWarpAlone{.threads = 32};

/// Small integers, whose products add without rounding.
Matrix numbers(int count, int seed) {
  Matrix matrix;
  for (int i = 0; i < count; ++i) {
    matrix.push_back(to_bfloat16(static_cast<float>((i * 7 + seed * 5 + i / 11) % 17 - 8)));
  }
  return matrix;
}

std::uint32_t pair(BFloat16 low, BFloat16 high) { return pack_pair(to_float(low), to_float(high)); }

/// Row and column of element i of a lane, from PTX ISA 9.7.14.5.8.
int left_row(int lane, int i) { return lane / 4 + ((i >= 2 && i < 4) || i >= 6 ? 8 : 0); }
int left_column(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0); }
int right_row(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0); }
int right_column(int lane) { return lane / 4; }
int sums_row(int lane, int i) { return lane / 4 + (i >= 2 ? 8 : 0); }
int sums_column(int lane, int i) { return lane % 4 * 2 + (i & 1); }

TEST(EmulatedTensorCore, MultipliesAndAdds) {
  const Matrix a = numbers(16 * 16, 1), b = numbers(16 * 8, 2);
  const auto a_at = [&](int lane, int i) {
    return a[static_cast<std::size_t>(left_row(lane, i) * 16 + left_column(lane, i))];
  };
  const auto b_at = [&](int lane, int i) {
    return b[static_cast<std::size_t>(right_row(lane, i) * 8 + right_column(lane))];
  };
  std::vector<float> c(16 * 8, 0.5f);
  run_grid("multiply_add", kWarpAlone, [&] {
    const int lane = static_cast<int>(threadIdx.x);
    const std::uint32_t left[4] = {
        pair(a_at(lane, 0), a_at(lane, 1)), pair(a_at(lane, 2), a_at(lane, 3)),
        pair(a_at(lane, 4), a_at(lane, 5)), pair(a_at(lane, 6), a_at(lane, 7))};
    float sums[4] = {0.5f, 0.5f, 0.5f, 0.5f};
    multiply_add(sums, left, pair(b_at(lane, 0), b_at(lane, 1)),
                 pair(b_at(lane, 2), b_at(lane, 3)));
    for (int i = 0; i < 4; ++i) {
      c[static_cast<std::size_t>(sums_row(lane, i) * 8 + sums_column(lane, i))] = sums[i];
    }
  });
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      float wanted = 0.5f;
      for (std::size_t k = 0; k < 16; ++k) {
        wanted += to_float(a[row * 16 + k]) * to_float(b[k * 8 + column]);
      }
      EXPECT_EQ(c[row * 8 + column], wanted) << row << ", " << column;
    }
  }
}

struct alignas(16) Row {
  std::array<std::uint16_t, 8> elements;
};

/// Matrices with element 64 i + 8 row + column of matrix i, and rows `spacing` rows apart.
std::vector<Row> matrix_rows(int spacing) {
  std::vector<Row> rows(static_cast<std::size_t>(32 * spacing));
  for (std::size_t r = 0; r < 32; ++r) {
    for (std::size_t column = 0; column < 8; ++column) {
      rows[r * static_cast<std::size_t>(spacing)].elements[column] =
          static_cast<std::uint16_t>(8 * r + column);
    }
  }
  return rows;
}

TEST(EmulatedTensorCore, LoadsMatrices) {
  const std::vector<Row> rows = matrix_rows(1);
  run_grid("load_matrices", kWarpAlone, [&] {
    const unsigned int lane = threadIdx.x;
    std::uint32_t straight[4], transposed[4];
    load_matrices(straight, shared_address(&rows[lane]));
    load_matrices_transposed(transposed, shared_address(&rows[lane]));
    const unsigned int g = lane / 4, t = lane % 4;
    for (unsigned int i = 0; i < 4; ++i) {
      EXPECT_EQ(straight[i] & 0xFFFF, 64 * i + 8 * g + 2 * t);
      EXPECT_EQ(straight[i] >> 16, 64 * i + 8 * g + 2 * t + 1);
      EXPECT_EQ(transposed[i] & 0xFFFF, 64 * i + 8 * (2 * t) + g);
      EXPECT_EQ(transposed[i] >> 16, 64 * i + 8 * (2 * t + 1) + g);
    }
  });
}

TEST(EmulatedTensorCore, CountsBankConflicts) {
  const auto conflicts = [](int spacing) {
    const std::vector<Row> rows = matrix_rows(spacing);
    bank_conflicts() = 0;
    run_grid("load_matrices", kWarpAlone, [&] {
      std::uint32_t loaded[4];
      load_matrices(loaded,
                    shared_address(&rows[threadIdx.x * static_cast<unsigned int>(spacing)]));
    });
    return bank_conflicts();
  };
  EXPECT_EQ(conflicts(1), 0);
  EXPECT_EQ(conflicts(3), 0);
  EXPECT_EQ(conflicts(2), 4);
  EXPECT_EQ(conflicts(8), 28);
}

TEST(EmulatedTensorCore, CopiesCompleteOnlyAtCoveringWait) {
  const Row from{{1, 2, 3, 4, 5, 6, 7, 8}};
  run_grid("copy_async", {.threads = 1}, [&] {
    std::array<Row, 3> to{};
    copy_async(shared_address(&to[0]), &from, true);
    commit_copies();
    copy_async(shared_address(&to[1]), &from, false);
    commit_copies();
    copy_async(shared_address(&to[2]), &from, true);
    wait_for_copies<1>();
    EXPECT_EQ(to[0].elements, from.elements);
    EXPECT_EQ(to[1].elements[0], 0xFFFF);
    EXPECT_EQ(to[2].elements[7], 0xFFFF);
    wait_for_copies<0>();
    EXPECT_EQ(to[1].elements, Row{}.elements);
    EXPECT_EQ(to[2].elements[7], 0xFFFF) << "not committed to a group yet";
    commit_copies();
    wait_for_copies<0>();
    EXPECT_EQ(to[2].elements, from.elements);
  });
}

TEST(EmulatedTensorCore, RefusesMisalignedAddresses) {
  alignas(16) std::array<char, 64> bytes{};
  EXPECT_THROW(
      run_grid("copy_async", {.threads = 1},
               [&] { copy_async(shared_address(bytes.data() + 8), bytes.data() + 32, true); }),
      Error);
}

}  // namespace
}  // namespace hybrid_trainer::emulation
