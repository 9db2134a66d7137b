#pragma once

#include <span>
#include <vector>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/convolution/spatial_window.h"

namespace hybrid_trainer::kernels::cpu {

/// A weight (C, taps), converted to f32 and transposed.
class ChannelTaps {
 public:
  ChannelTaps(const Tensor& weight, const Stream& stream);
  const float* tap(std::int64_t index) const { return values_.data<float>() + index * channels; }
  std::int64_t channels, taps;

 private:
  Tensor values_;
};

// The following functions convolve each channel with its own taps: weight (C, taps), groups = C.

void convolve_channels(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const SpatialWindow& window, const Stream& stream);
void convolve_channels_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                      const SpatialWindow& window, const Stream& stream);
void convolve_channels_backward_weight(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                       const SpatialWindow& window, GradientMode mode,
                                       const Stream& stream);

void convolve_backward_weight(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                              const SpatialWindow& window, std::int64_t groups, GradientMode mode,
                              const Stream& stream);

/// A run of `count` contiguous words, f32 numbers or bf16 pairs, from `offset` on.
struct WordRun {
  std::int64_t offset, count;
  std::int64_t first;  // index k of the run's first word
};

/// Tile of a product: sums[r, j] = start[j] + Σ_k a(r, k)·b[k, j]. k counts the words of all runs;
/// j counts whole vectors. Within a run, a(r, k) is word offset + r·step + k of a if TileSteps is
/// kRows, so that each row is a different window. If it is kPlaces, a(r, k) is word offset + k·step
/// + r, so that all rows are at one place, which moves with k.
struct WindowTile {
  const float* a = nullptr;
  std::int64_t step = 0;
  const WordRun* runs = nullptr;
  std::int64_t run_count = 0;
  const float* b = nullptr;  // the vectors of index k begin at word k·b_step
  std::int64_t b_step = 0;
  const float* start = nullptr;  // zeros if null
  float* sums = nullptr;         // rows are contiguous
  bool adds = false;             // adds to `sums` instead of overwriting it
};

enum class TileSteps { kRows, kPlaces };

/// Tile functions for this machine's vectors. A product of two pairs is the sum of the products of
/// their elements.
class WindowTiles {
 public:
  /// `pairs` is whether words are pairs of bf16, which the CPU must support.
  WindowTiles(bool pairs, TileSteps steps);
  static constexpr std::int64_t kMaxVectors = 2;
  std::int64_t lanes() const { return lanes_; }  // floats per vector
  std::int64_t width() const { return kMaxVectors * lanes_; }
  std::int64_t max_rows() const { return max_rows_; }
  /// Sums a tile. `rows` is at most max_rows(); `vectors` is 1 or 2.
  void sum(std::int64_t rows, std::int64_t vectors, const WindowTile& tile) const {
    functions_[(rows - 1) * kMaxVectors + vectors - 1](tile);
  }
  using Function = void (*)(const WindowTile&);

 private:
  std::int64_t lanes_, max_rows_;
  const Function* functions_;
};

/// Returns whether bf16 convolutions multiply pairs, instead of converting to f32.
bool multiplies_pairs();

/// A window's tap in one dimension: its `offset` from the first place, and `index` in the kernel.
struct SlidingTap {
  std::int64_t offset, index;
};

/// Windows along one dimension. Window o begins at place o·step + origin, which may be outside. The
/// result of window o goes to place first + o·spread.
struct SlidingDimension {
  std::int64_t places = 1;  // number of input places
  std::int64_t windows = 1, step = 1, origin = 0;
  std::vector<SlidingTap> taps{{0, 0}};  // consecutive
  std::int64_t results = 1, first = 0, spread = 1;
  std::int64_t reach() const { return taps.empty() ? 0 : taps.back().offset + 1; }
};

/// Strides in the weight of one group, from each output, tap or input to the next.
struct SlidingWeight {
  const void* first = nullptr;  // first weight of group 0
  std::int64_t group = 0;       // elements between adjacent groups
  std::int64_t output = 0, tap = 0, input = 0;
};

/// result[.., output] = bias + Σ weight·x[.., input] in equal groups; zeros outside x.
struct SlidingProduct {
  DType dtype = DType::kF32;
  std::int64_t batch = 1, groups = 1;
  std::int64_t inputs = 1, outputs = 1;  // channels per group
  std::array<SlidingDimension, 3> dimensions{};
  std::int64_t kernel[3] = {1, 1, 1};  // taps of the weight
  const void* x = nullptr;
  SlidingWeight weight{};
  const float* bias = nullptr;
  void* result = nullptr;
};

/// Computes independent products. The bits do not depend on the number of threads.
void multiply_sliding(std::span<const SlidingProduct> products, const Stream& stream);

}  // namespace hybrid_trainer::kernels::cpu
