#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/parallel.h"

namespace hybrid_trainer::kernels::cpu {

// Products of small f32 matrices that stand in the nearest caches: no operand is packed. Every size
// is a multiple of a tile's, where arrays are padded with zeros.

/// A product's left factor: element (row, k) is at row·row_stride + k·depth_stride, one of which is 1.
struct LeftFactor {
  const float* data;
  std::int64_t row_stride, depth_stride;
};

/// Its right factor: row k at k·stride.
struct RightFactor {
  const float* data;
  std::int64_t stride;
};

/// Sums of kRows rows and two vectors of columns, in registers.
template <int kLanes>
struct SumTile {
  typedef float Floats [[gnu::vector_size(4 * kLanes)]];
  static constexpr int kRows = kLanes == 16 ? 8 : 4;
  static constexpr int kColumns = 2 * kLanes;

  /// += rows [row, row + kRows) of `a` times columns [column, column + kColumns) of `b`.
  void add(const LeftFactor& a, std::int64_t row, const RightFactor& b, std::int64_t column,
           std::int64_t begin, std::int64_t end) {
    const float* const from = a.data + row * a.row_stride;
    const float* const right = b.data + column;
    if (a.row_stride == 1) {
      const std::int64_t stride = a.depth_stride;
      add_products([=](int r, std::int64_t k) { return from[k * stride + r]; }, right, b.stride,
                   begin, end);
    } else {
      const std::int64_t stride = a.row_stride;
      add_products([=](int r, std::int64_t k) { return from[r * stride + k]; }, right, b.stride,
                   begin, end);
    }
  }

  /// Each row times its factor.
  void scale(const float* factors) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] *= factors[r];
      sums[r][1] *= factors[r];
    }
  }

  /// to = scale·to + the sums; rows `stride` apart.
  void add_to(float* to, std::int64_t stride, float scale) const {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      Floats left, right;
      load(left, right, to + r * stride);
      store(to + r * stride, left * scale + sums[r][0], right * scale + sums[r][1]);
    }
  }
  void write(float* to, std::int64_t stride) const {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) store(to + r * stride, sums[r][0], sums[r][1]);
  }

  // One vector at a time: the compiler copies longer arrays by way of memory.
  static void load(Floats& left, Floats& right, const float* from) {
    std::memcpy(&left, from, sizeof left);
    std::memcpy(&right, from + kLanes, sizeof right);
  }
  static void store(float* to, const Floats& left, const Floats& right) {
    std::memcpy(to, &left, sizeof left);
    std::memcpy(to + kLanes, &right, sizeof right);
  }

  Floats sums[kRows][2] = {};

 private:
  template <class Element>
  void add_products(const Element& element, const float* right, std::int64_t stride,
                    std::int64_t begin, std::int64_t end) {
    Floats own[kRows][2];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) own[r][0] = sums[r][0], own[r][1] = sums[r][1];
    for (std::int64_t k = begin; k < end; ++k) {
      Floats first, second;
      load(first, second, right + k * stride);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        own[r][0] += element(r, k) * first;
        own[r][1] += element(r, k) * second;
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r][0] = own[r][0], sums[r][1] = own[r][1];
  }
};

/// finish(row, column, tile) for each tile of a·b over the depth [0, depth).
template <int kLanes, class Finish>
inline void for_tiles(std::int64_t rows, std::int64_t columns, const LeftFactor& a,
                      const RightFactor& b, std::int64_t depth, const Finish& finish) {
  for (std::int64_t row = 0; row < rows; row += SumTile<kLanes>::kRows) {
    for (std::int64_t column = 0; column < columns; column += SumTile<kLanes>::kColumns) {
      SumTile<kLanes> tile;
      tile.add(a, row, b, column, 0, depth);
      finish(row, column, tile);
    }
  }
}

/// to (rows, columns) = scale·to + a·b.
template <int kLanes>
inline void add_product(float* to, std::int64_t stride, float scale, std::int64_t rows,
                        std::int64_t columns, const LeftFactor& a, const RightFactor& b,
                        std::int64_t depth) {
  for_tiles<kLanes>(rows, columns, a, b, depth,
                    [=](std::int64_t row, std::int64_t column, const SumTile<kLanes>& tile) {
                      tile.add_to(to + row * stride + column, stride, scale);
                    });
}

template <int kLanes>
struct Lanes {
  static constexpr int kCount = kLanes;
};

/// body(lanes of a vector, worker, item) for each item; see parallel_items.
template <class Body>
void parallel_items_by_lanes(std::int64_t count, const Body& body) {
  switch (instruction_set()) {
    case InstructionSet::kAvx512:
      return run_tasks(count, [&](std::int64_t worker, std::int64_t item) {
        run_avx512(body, Lanes<16>(), worker, item);
      });
    case InstructionSet::kAvx2:
      if constexpr (!kSanitized) {
        return run_tasks(count, [&](std::int64_t worker, std::int64_t item) {
          run_avx2(body, Lanes<8>(), worker, item);
        });
      }
      [[fallthrough]];
    case InstructionSet::kBaseline:
      return run_tasks(count, [&](std::int64_t worker, std::int64_t item) {
        run_baseline(body, Lanes<4>(), worker, item);
      });
  }
}

}  // namespace hybrid_trainer::kernels::cpu
