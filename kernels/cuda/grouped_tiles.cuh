#pragma once

// Products of one tile of a group's matrix by a block of threads. Sums are f32, in the order of depth,
// whatever the tile's rows and columns are.

#include "kernels/cuda/block_product.cuh"

namespace hybrid_trainer::kernels::cuda {

/// The left operand of a tile, or the right one transposed. In memory, neighbors lie along the depth or
/// across it.
template <class T, bool kAlong>
struct GroupedOperand {
  const T* begin;       // of the tile's first row (of the right one: column) at depth 0
  std::int64_t stride;  // between neighbors that do not lie side by side
  int count;            // of rows or columns from the tile's first on; may be more than a tile's
  bool packed;          // all of it can be read in packs
  __device__ const T* at(int outer, int depth) const {
    return begin + (kAlong ? outer * stride + depth : depth * stride + outer);
  }
};

/// Where a tile's sums go.
template <class T>
struct GroupedOutput {
  T* begin;  // of the tile
  std::int64_t stride;
  int rows, columns;  // that there are; may be more than a tile's
  const float* bias;  // of the tile's columns, or null
  bool accumulates, packed;

  /// N neighbors, of which those that there are not are 0. Even columns if N is 2.
  template <int N>
  __device__ void read(float (&to)[N], int row, int column) const {
    const T* const from = begin + row * stride + column;
    if (row < rows && column < columns && packed) {
      load_pack(to, from);
    } else {
      for (int i = 0; i < N; ++i)
        to[i] = row < rows && column + i < columns ? load(from + i) : 0.0f;
    }
  }
  template <int N>
  __device__ void write(int row, int column, const float (&values)[N]) const {
    T* const to = begin + row * stride + column;
    if (row >= rows || column >= columns) return;
    if (packed) return store_pack(to, values);
    for (int i = 0; i < N; ++i) {
      if (column + i < columns) store(to + i, values[i]);
    }
  }
  __device__ float bias_of(int column) const {
    return bias != nullptr && column < columns ? bias[column] : 0.0f;
  }
};

/// The product of one tile, here on plain cores. Takes kBytes of dynamic shared memory.
template <class T, bool kLeftAlong, bool kRightAlong>
class GroupedTile {
 public:
  static constexpr int kRows = kProductSide, kColumns = kProductSide, kThreads = kProductThreads;
  static constexpr int kBlocks = kProductBlocks;  // that share a multiprocessor
  static constexpr std::size_t kBytes = BlockProduct<T>::kBytes;

  __device__ void multiply(const GroupedOperand<T, kLeftAlong>& left,
                           const GroupedOperand<T, kRightAlong>& right, int depth) {
    product_.set_zero();
    product_.add(operand(left), operand(right), depth);
  }
  template <class Out>
  __device__ void write(const GroupedOutput<Out>& out) {
    float before[BlockProduct<T>::kSums][1] = {};
    if (out.accumulates) {  // all reads before the first write
      product_.each([&](int i, int row, int column, float) { out.read(before[i], row, column); });
    }
    product_.each([&](int i, int row, int column, float sum) {
      const float value[1] = {sum + out.bias_of(column) + before[i][0]};
      out.write(row, column, value);
    });
  }

 private:
  template <bool kAlong>
  __device__ static auto operand(const GroupedOperand<T, kAlong>& from) {
    const auto at = [&from](int outer, int depth) {
      return outer < from.count ? load(from.at(outer, depth)) : 0.0f;
    };
    return ProductOperand<kAlong, decltype(at)>{at};
  }
  BlockProduct<T> product_;
};

}  // namespace hybrid_trainer::kernels::cuda
