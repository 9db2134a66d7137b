// Product of one tile of a group's matrix by a block of threads, in bf16 on tensor cores. Sums are
// f32 in the order of depth, independent of the tile's rows and columns.

#pragma once

#include "kernels/backend/tensor_core.cuh"
#include "kernels/products/block_product.cuh"

namespace hybrid_trainer::kernels::cuda {

/// Left operand of a tile, or the transposed right operand. Memory is contiguous along the depth if
/// kAlong, otherwise across it.
template <class T, bool kAlong>
struct GroupedOperand {
  const T* begin;       // first row (right operand: column) of the tile at depth 0
  std::int64_t stride;  // elements between rows or columns of the tile
  int count;            // rows or columns from the tile's first one on; may exceed the tile
  bool packed;          // whether the operand consists of whole, aligned packs
  __device__ const T* at(int outer, int depth) const {
    return begin + (kAlong ? outer * stride + depth : depth * stride + outer);
  }
};

/// Destination of the sums of a tile.
template <class T>
struct GroupedOutput {
  T* begin;  // first element of the tile
  std::int64_t stride;
  int rows, columns;  // rows and columns to write; may exceed the tile
  const float* bias;  // bias of the tile's columns, or null
  bool accumulates, packed;

  /// Reads N adjacent elements. Elements outside the operand become 0. `column` must be even if N
  /// is 2.
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
    for (int i = 0; i < N; ++i)
      if (column + i < columns) store(to + i, values[i]);
  }
  __device__ float bias_of(int column) const {
    return bias != nullptr && column < columns ? bias[column] : 0.0f;
  }
};

/// Product of a tile, without tensor cores unless specialized, in kBytes of dynamic shared memory.
template <class T, bool kLeftAlong, bool kRightAlong>
class GroupedTile {
 public:
  static constexpr int kRows = kProductSide, kColumns = kProductSide, kThreads = kProductThreads;
  static constexpr int kBlocks = kProductBlocks;  // per multiprocessor
  static constexpr std::size_t kBytes = BlockProduct<T>::kBytes;

  __device__ void multiply(const GroupedOperand<T, kLeftAlong>& left,
                           const GroupedOperand<T, kRightAlong>& right, int depth) {
    product_.set_zero();
    product_.add(operand(left), operand(right), depth);
  }
  template <class Out>
  __device__ void write(const GroupedOutput<Out>& out) {
    float before[BlockProduct<T>::kSums][1] = {};
    if (out.accumulates) {  // reads all earlier sums before the first write
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

/// Each warp computes 64 rows and columns. Slices of both operands arrive in a ring of buffers
/// while earlier ones are multiplied. On an H100, mma.sync reaches 620 of 989 TFLOP/s (Luo et al.
/// 2024): one m16n8k16 takes a multiprocessor 1.6 cycles, and a slice, which has 512 of them, takes
/// 820 cycles. In this time L2 delivers 24 KiB, or 30 bytes per cycle. L2's 5.5 TB/s are 24 bytes
/// per cycle for each multiprocessor, which allows 500 TFLOP/s; tiles of 128 columns would need 40
/// bytes per cycle. For groups of 128 rows, DRAM's 3.0 TB/s limits any kernel. Each matrix is read
/// once, which is 2 bytes for 256 operations and allows 384 TFLOP/s. Its f32 gradient is written
/// once, which is 4 bytes for the same operations and allows 192 TFLOP/s. From 330 rows on, L2 is
/// the limit. A multiprocessor has 72 KiB in flight; 18 KiB suffice to hide DRAM's latency of 0.8
/// µs.
template <bool kLeftAlong, bool kRightAlong>
class GroupedTile<BFloat16, kLeftAlong, kRightAlong> {
 public:
  static constexpr int kRows = 128, kColumns = 256, kThreads = 256;
  static constexpr int kBlocks = 1;   // minimum blocks per multiprocessor
  static constexpr int kSlice = 32;   // depth positions per slice
  static constexpr int kBuffers = 4;  // number of slices in the ring
  static constexpr int kElements = kSlice * (kRows + kColumns);
  static constexpr std::size_t kBytes = kBuffers * kElements * sizeof(BFloat16);
  using Left = GroupedOperand<BFloat16, kLeftAlong>;
  using Right = GroupedOperand<BFloat16, kRightAlong>;

  __device__ void multiply(const Left& left, const Right& right, int depth) {
    for (auto& of_row : sums_) {
      for (auto& of_tile : of_row)
        for (float& sum : of_tile) sum = 0;
    }
    const LeftSlices of_left(left);
    const RightSlices of_right(right);
    const int from_left = place_of_left(), from_right = kRows * kSlice + place_of_right();
    const int rows = right.count > warp_column() ? left.count - warp_row() : 0;
    const auto copy = [&](int slice) {
      if (slice * kSlice < depth) {
        of_left.copy(buffer(slice), left, slice, depth);
        of_right.copy(buffer(slice) + kRows * kSlice, right, slice, depth);
      }
      commit_copies();
    };
    for (int slice = 0; slice < kBuffers - 1; ++slice) copy(slice);
#pragma unroll 1
    for (int slice = 0; slice * kSlice < depth; ++slice) {
      wait_for_copies<kBuffers - 2>();
      __syncthreads();  // this slice has arrived, and all threads have read the previous slice
      copy(slice + kBuffers - 1);
      if (rows > kWarpSide / 2) {
        add_slice<kRowTiles>(buffer(slice), from_left, from_right);
      } else if (rows > 0) {
        add_slice<kRowTiles / 2>(buffer(slice), from_left, from_right);
      }
    }
  }
  template <class Out>
  __device__ void write(const GroupedOutput<Out>& out) const {
    /// Lines of eight rows; tiles of columns processed together.
    constexpr int kLines = 2 * kRowTiles, kAtOnce = 2;
    const int first_row = warp_row() + lane() / 4, first_column = warp_column() + lane() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kColumnTiles; n += kAtOnce) {
      float before[kAtOnce][kLines][2] = {};
      for (int i = 0; i < kAtOnce * kLines && out.accumulates; ++i)  // reads before writes
        out.read(before[i / kLines][i % kLines], first_row + 8 * (i % kLines),
                 first_column + 8 * (n + i / kLines));
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int column = first_column + 8 * (n + j);
        const float bias[2] = {out.bias_of(column), out.bias_of(column + 1)};
#pragma unroll
        for (int i = 0; i < kLines; ++i) {
          const float* const sum = sums_[i / 2][n + j] + 2 * (i % 2);
          const float values[2] = {sum[0] + bias[0] + before[j][i][0],
                                   sum[1] + bias[1] + before[j][i][1]};
          out.write(first_row + 8 * i, column, values);
        }
      }
    }
  }

 private:
  static constexpr int kWarpSide = 64, kRowTiles = kWarpSide / 16, kColumnTiles = kWarpSide / 8;
  static constexpr int kChunk = 8;  // elements in 16 bytes
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  __device__ static int warp_row() { return static_cast<int>(threadIdx.x) / kWarp % 2 * kWarpSide; }
  __device__ static int warp_column() {
    return static_cast<int>(threadIdx.x) / kWarp / 2 * kWarpSide;
  }
  __device__ static BFloat16* buffer(int slice) {
    return dynamic_shared<BFloat16>() + slice % kBuffers * kElements;
  }
  /// Number of elements in a line of a slice. A line is a row or column if memory is contiguous
  /// along the depth, otherwise it is a position in the depth.
  template <int kSide, bool kAlong>
  static constexpr int kLine = kAlong ? kSlice : kSide;
  /// Returns a chunk's position in a slice. Chunks that are read together are in different banks.
  template <int kElementsOfLine>
  __device__ static int place(int line, int chunk) {
    const int turn = kElementsOfLine == kSlice ? line >> 1 & 3 : line & 7;
    return line * kElementsOfLine + (chunk ^ turn) * kChunk;
  }

  /// The thread's copies of slices of an operand: it copies one chunk of every kStep-th line.
  template <int kSide, bool kAlong>
  class Slices {
   public:
    using Operand = GroupedOperand<BFloat16, kAlong>;
    __device__ explicit Slices(const Operand& from)
        : begin_(kAlong ? from.at(line(), chunk() * kChunk) : from.at(chunk() * kChunk, line())),
          step_(static_cast<unsigned int>(kStep * from.stride)) {}
    /// Starts to copy a slice. Writes zeros outside the operand and beyond the depth.
    __device__ void copy(BFloat16* to, const Operand& from, int slice, int depth) const {
      const int deep = depth - slice * kSlice;
      const int elements = (kAlong ? deep : from.count) - chunk() * kChunk;
      const int lines = elements > 0 ? (kAlong ? from.count : deep) - line() : 0;
      const BFloat16* const begin = begin_ + slice * (kAlong ? kSlice : kSlice * from.stride);
      to += place<kElementsOfLine>(line(), chunk());
      if (from.packed) {
        const SharedAddress address = shared_address(to);
#pragma unroll
        for (unsigned int i = 0; i < kLines / kStep; ++i)
          copy_async(address + i * kStep * kElementsOfLine * sizeof(BFloat16), begin + i * step_,
                     static_cast<int>(i * kStep) < lines);
      } else {
#pragma unroll 1
        for (unsigned int i = 0; i < kLines / kStep; ++i)
          copy_chunk(to + i * kStep * kElementsOfLine, begin + i * step_,
                     static_cast<int>(i * kStep) < lines ? elements : 0);
      }
    }

   private:
    static constexpr int kElementsOfLine = kLine<kSide, kAlong>;
    static constexpr int kLines = kSlice * kSide / kElementsOfLine;
    static constexpr int kChunks = kElementsOfLine / kChunk, kStep = kThreads / kChunks;
    static_assert(kLines % kStep == 0 && kStep % 8 == 0);  // aligns chunks across lines
    __device__ static int line() { return static_cast<int>(threadIdx.x) / kChunks; }
    __device__ static int chunk() { return static_cast<int>(threadIdx.x) % kChunks; }
    const BFloat16* begin_;
    unsigned int step_;  // elements from one of the thread's lines to the next
  };
  using LeftSlices = Slices<kRows, kLeftAlong>;
  using RightSlices = Slices<kColumns, kRightAlong>;

  /// Copies `count` elements and fills the rest of the chunk with zeros.
  __device__ static void copy_chunk(BFloat16* to, const BFloat16* from, int count) {
    Pack<BFloat16, kChunk> pack;
    for (int i = 0; i < kChunk; ++i) pack.values[i] = i < count ? from[i] : BFloat16{0};
    *reinterpret_cast<Pack<BFloat16, kChunk>*>(to) = pack;
  }

  /// Returns the row of 16 bytes that the lane addresses for the warp's first tile at depth 0.
  __device__ static int place_of_left() {
    const int at = lane();
    return kLeftAlong ? place<kSlice>(warp_row() + at % 16, at / 16)
                      : place<kRows>(at / 16 * 8 + at % 8, warp_row() / kChunk + at / 8 % 2);
  }
  __device__ static int place_of_right() {
    const int at = lane();
    return kRightAlong ? place<kSlice>(warp_column() + at / 16 * 8 + at % 8, at / 8 % 2)
                       : place<kColumns>(at % 16, warp_column() / kChunk + at / 16);
  }
  /// Reads the 16 rows or columns of tile `tile`, at the 16 depth positions of step `step`.
  template <int kSide, bool kAlong>
  __device__ static void read(std::uint32_t (&to)[4], const BFloat16* from, int place, int tile,
                              int step) {
    constexpr int kElementsOfLine = kLine<kSide, kAlong>;
    const int chunks = kAlong ? step : tile, lines = kAlong ? tile : step;
    const SharedAddress at =
        shared_address(from + (place ^ 16 * chunks) + 16 * lines * kElementsOfLine);
    if constexpr (kAlong) {
      load_matrices(to, at);
    } else {
      load_matrices_transposed(to, at);
    }
  }

  /// Adds the slice's product for the warp's first kTiles tiles of 16 rows.
  template <int kTiles>
  __device__ void add_slice(const BFloat16* slice, int from_left, int from_right) {
#pragma unroll
    for (int k = 0; k < kSlice / 16; ++k) {
      std::uint32_t a[kTiles][4];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) read<kRows, kLeftAlong>(a[m], slice, from_left, m, k);
#pragma unroll
      for (int n = 0; n < kColumnTiles / 2; ++n) {
        std::uint32_t b[4];
        read<kColumns, kRightAlong>(b, slice, from_right, n, k);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          multiply_add(sums_[m][2 * n], a[m], b[0], b[1]);
          multiply_add(sums_[m][2 * n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }
  float sums_[kRowTiles][kColumnTiles][4];
};

}  // namespace hybrid_trainer::kernels::cuda
