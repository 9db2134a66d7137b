// Products of small matrices by one block of threads, with operands computed as they are read. A
// product has 64 rows, 64 or 32 columns, and any depth. Threads multiply f32 without tensor cores;
// operands in bf16 are rounded and multiplied on tensor cores. Sums are f32 in the order of depth.

#pragma once

#include "kernels/backend/reduce.cuh"
#include "kernels/backend/tensor_core.cuh"

namespace hybrid_trainer::kernels::cuda {

constexpr int kProductSide = 64;
constexpr int kProductThreads = 128;
/// Minimum blocks per multiprocessor; allows 128 registers per thread.
constexpr int kProductBlocks = 4;

/// An operand. at(outer, depth) returns an element; outer is a row of the left operand or a column
/// of the right one. kAlong is whether memory is contiguous along the depth. `at` returns 0 outside
/// the matrix and is not called beyond the depth. `at` may provide pair(line, element), which
/// returns two adjacent elements in bf16. A line is a row or column if kAlong, otherwise a position
/// in the depth. `pair` also returns 0 outside the matrix. It is called for depths up to the
/// product's depth rounded up to 16.
template <bool kAlong, class At>
struct ProductOperand {
  At at;
};
template <class At>
__device__ ProductOperand<true, At> along_depth(const At& at) {
  return {at};
}
template <class At>
__device__ ProductOperand<false, At> across_depth(const At& at) {
  return {at};
}

/// The product of a block of threads. Uses the first kBytes of the block's dynamic shared memory.
template <class T, int kWidth = kProductSide>
class BlockProduct {
 public:
  static constexpr int kSlice = 16;  // depth positions of a slice in shared memory
  static constexpr int kStride = kProductSide + 4;
  static constexpr std::size_t kBytes = 2 * kSlice * kStride * sizeof(float);

  __device__ void set_zero() {
    for (int i = 0; i < kRows * kColumns; ++i) sums_[i] = 0;
  }
  /// Adds left · right. `at` may read everything that was written to shared memory before the call.
  template <class Left, class Right>
  __device__ void add(const Left& left, const Right& right, int depth) {
    float* const of_left = dynamic_shared<float>();
    float* const of_right = of_left + kSlice * kStride;
#pragma unroll 1
    for (int first = 0; first < depth; first += kSlice) {
      __syncthreads();
      load_slice<kProductSide>(of_left, left, first, depth);
      load_slice<kWidth>(of_right, right, first, depth);
      __syncthreads();
#pragma unroll 4
      for (int k = 0; k < kSlice; ++k) {
        float a[kRows], b[kColumns];
        load_pack(a, of_left + k * kStride + row(0));
        load_pack(b, of_right + k * kStride + column(0));
        for (int i = 0; i < kRows; ++i)
          for (int j = 0; j < kColumns; ++j) sums_[i * kColumns + j] += a[i] * b[j];
      }
    }
  }
  /// Calls f(index of the thread's sum, row, column, sum) for each of the thread's sums.
  template <class F>
  __device__ void each(const F& f) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j)
        f(i * kColumns + j, row(i), column(j), sums_[i * kColumns + j]);
    }
  }
  /// Adds to sums[row] the sum of f(row, column, sum) over the columns. One thread adds each row.
  template <class F>
  __device__ void add_row_sums(float* sums, const F& f) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int at = hidden(row(i));  // reads the rows one after the other
      float sum = 0;
      for (int j = 0; j < kColumns; ++j) sum += f(at, column(j), sums_[i * kColumns + j]);
      sum = reduce_warp(sum, Sum{}, kAcross);
      if (threadIdx.x % kAcross == 0) sums[at] += sum;
    }
  }
  static constexpr int kSums = kProductSide * kWidth / kProductThreads;  // sums per thread

 private:
  static constexpr int kAcross = 16, kRows = 8, kColumns = kSums / kRows;  // per thread
  __device__ static int row(int i) { return static_cast<int>(threadIdx.x) / kAcross * kRows + i; }
  __device__ static int column(int j) {
    return static_cast<int>(threadIdx.x) % kAcross * kColumns + j;
  }
  template <int kSide, bool kAlong, class At>
  __device__ static void load_slice(float* slice, const ProductOperand<kAlong, At>& from, int first,
                                    int depth) {
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < kSlice * kSide; i += kProductThreads) {
      const int k = kAlong ? i % kSlice : i / kSide;
      const int outer = kAlong ? i / kSlice : i % kSide;
      slice[k * kStride + outer] = first + k < depth ? from.at(outer, first + k) : 0.0f;
    }
  }
  float sums_[kRows * kColumns];
};

/// Each warp computes 16 rows and all columns. Chunk c of eight elements of a slice's line (see
/// ProductOperand) is stored at c ^ (line % 8), so that load_matrices uses each bank once.
template <int kWidth>
class BlockProduct<BFloat16, kWidth> {
 public:
  static constexpr int kSlice = 64;
  static constexpr std::size_t kBytes = 2 * kSlice * kProductSide * sizeof(BFloat16);

  __device__ void set_zero() {
    for (auto& tile : sums_)
      for (float& sum : tile) sum = 0;
  }
  template <bool kLeftAlong, class Left, bool kRightAlong, class Right>
  __device__ void add(const ProductOperand<kLeftAlong, Left>& left,
                      const ProductOperand<kRightAlong, Right>& right, int depth) {
    BFloat16* const of_left = dynamic_shared<BFloat16>();
    BFloat16* const of_right = of_left + kSlice * kProductSide;
#pragma unroll 1
    for (int first = 0; first < depth; first += kSlice) {
      const int steps = (depth - first < kSlice ? depth - first + 15 : kSlice) / 16;
      __syncthreads();
      load_slice<kProductSide>(of_left, left, first, depth, 16 * steps);
      load_slice<kWidth>(of_right, right, first, depth, 16 * steps);
      __syncthreads();
#pragma unroll 1
      for (int k = 0; k < steps; ++k) {
        std::uint32_t a[4];
        read_left<kLeftAlong>(a, of_left, 16 * k);
#pragma unroll
        for (int n = 0; n < kTiles / 2; ++n) {
          std::uint32_t b[4];
          read_right<kRightAlong>(b, of_right, 16 * n, 16 * k);
          multiply_add(sums_[2 * n], a, b[0], b[1]);
          multiply_add(sums_[2 * n + 1], a, b[2], b[3]);
        }
      }
    }
  }
  template <class F>
  __device__ void each(const F& f) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
      for (int i = 0; i < 4; ++i) f(4 * n + i, row(i / 2), column(n, i % 2), sums_[n][i]);
  }
  template <class F>
  __device__ void add_row_sums(float* sums, const F& f) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = hidden(row(h));
      float sum = 0;
      for (int n = 0; n < kTiles; ++n)
        for (int i = 0; i < 2; ++i) sum += f(at, column(n, i), sums_[n][2 * h + i]);
      sum = reduce_warp(sum, Sum{}, 4);
      if (threadIdx.x % 4 == 0) sums[at] += sum;
    }
  }
  static constexpr int kSums = kProductSide * kWidth / kProductThreads;

 private:
  static constexpr int kTiles = kWidth / 8;
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  __device__ static int warp_row() { return static_cast<int>(threadIdx.x) / kWarp * 16; }
  __device__ static int row(int half) { return warp_row() + 8 * half + lane() / 4; }
  __device__ static int column(int tile, int i) { return 8 * tile + lane() % 4 * 2 + i; }

  /// Returns the offset of an element in a slice with lines of kLine elements.
  template <int kLine>
  __device__ static int place(int line, int element) {
    const int turn = kLine == kSlice ? line & 7 : line >> 1 & 3;
    return line * kLine + ((element / 8) ^ turn) * 8 + element % 8;
  }
  template <int kLine>
  __device__ static SharedAddress address(const BFloat16* slice, int line, int element) {
    return shared_address(slice + place<kLine>(line, element));
  }
  /// Loads depth positions [first, first + end), with zeros from `depth` on.
  template <int kSide, bool kAlong, class At>
  __device__ static void load_slice(BFloat16* slice, const ProductOperand<kAlong, At>& from,
                                    int first, int depth, int end) {
    constexpr int kLine = kAlong ? kSlice : kSide;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < kSlice * kSide / 2; i += kProductThreads) {
      const int line = i / (kLine / 2), element = i % (kLine / 2) * 2;
      if ((kAlong ? element : line) >= end) continue;
      auto* const to = reinterpret_cast<std::uint32_t*>(slice + place<kLine>(line, element));
      if constexpr (requires { from.at.pair(0, 0); }) {
        *to = from.at.pair(kAlong ? line : first + line, kAlong ? first + element : element);
      } else {
        float pair[2];
        for (int j = 0; j < 2; ++j) {
          const int k = kAlong ? element + j : line, outer = kAlong ? line : element + j;
          pair[j] = first + k < depth ? from.at(outer, first + k) : 0.0f;
        }
        *to = pack_pair(pair[0], pair[1]);
      }
    }
  }
  /// Reads the warp's rows at depths [k, k + 16).
  template <bool kAlong>
  __device__ static void read_left(std::uint32_t (&to)[4], const BFloat16* slice, int k) {
    const int at = lane();
    if constexpr (kAlong) {
      load_matrices(to, address<kSlice>(slice, warp_row() + at % 16, k + at / 16 * 8));
    } else {
      load_matrices_transposed(
          to, address<kProductSide>(slice, k + at / 16 * 8 + at % 8, warp_row() + at / 8 % 2 * 8));
    }
  }
  /// Reads columns [column, column + 16) at depths [k, k + 16).
  template <bool kAlong>
  __device__ static void read_right(std::uint32_t (&to)[4], const BFloat16* slice, int column,
                                    int k) {
    const int at = lane();
    if constexpr (kAlong) {
      load_matrices(to, address<kSlice>(slice, column + at / 16 * 8 + at % 8, k + at / 8 % 2 * 8));
    } else {
      load_matrices_transposed(to, address<kWidth>(slice, k + at % 16, column + at / 16 * 8));
    }
  }
  float sums_[kTiles][4];
};

}  // namespace hybrid_trainer::kernels::cuda
