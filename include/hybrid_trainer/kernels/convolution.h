#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// A number for each of up to three dimensions of space; those beyond a tensor's do not count.
using SpatialSizes = std::array<std::int64_t, 3>;

/// Windows that slide over the places of x (B, D1..Dn, C), n from 1 to 3.
struct Window {
  SpatialSizes kernel{1, 1, 1};    // places that a window reads
  SpatialSizes stride{1, 1, 1};    // places from one window to the next
  SpatialSizes padding{0, 0, 0};   // places outside x before the first one and after the last
  SpatialSizes dilation{1, 1, 1};  // places from one that a window reads to the next

  /// Places from the first to the last that a window reads.
  std::int64_t reach(std::size_t i) const { return (kernel[i] - 1) * dilation[i] + 1; }
  /// Places that a window reads, over the first n dimensions.
  std::int64_t taps(int n) const;
  /// Windows along dimension i of `size` places; 0 where none fits.
  std::int64_t outputs(std::size_t i, std::int64_t size) const;
};

/// Dimensions of space of a tensor (B, D1..Dn, C).
inline int spatial_rank(const Shape& x) { return x.rank() - 2; }
/// Places of an example: D1·…·Dn.
std::int64_t places_of(const Shape& x);
/// (B, O1..On, channels): a place for each window over x.
Shape window_outputs(const Shape& x, const Window& window, std::int64_t channels);

// Convolution over one to three dimensions of space, channels last. x: (B, D1..Dn, C); weight: (O,
// taps·C/groups), of a row the taps outermost, the last dimension's fastest, and the channels of a
// group innermost; y: (B, O1..On, O) (see window_outputs). All f32 or bf16, of one dtype. Channels and
// outputs are in `groups` equal parts, and an output reads the channels of its part alone. Beyond x are
// zeros. Sums in f32, in an order that depends on the sizes alone.

/// y[o] = bias + Σ over the places that window o reads of weight·x. bias: (O) f32 or undefined.
void convolution_forward(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Window& window, std::int64_t groups, const Stream& stream);

/// dx = the gradient of x: each place sums those of the windows that read it.
void convolution_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                const Window& window, std::int64_t groups, const Stream& stream);

/// dweight (+)= the gradient of weight, f32. That of the bias is bias_backward of dy's rows.
void convolution_backward_weight(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                 const Window& window, std::int64_t groups, GradientMode mode,
                                 const Stream& stream);

// Means and maxima of windows over one to three dimensions of space, channels last, each channel by
// itself. x: (B, D1..Dn, C), y: (B, O1..On, C) (see window_outputs), f32 or bf16, of one dtype. A
// window's padding is at most half of its kernel.

/// By what a window's sum is divided.
enum class Divisor {
  kWindow,  // the places of the kernel, those in the padding too, as PyTorch's count_include_pad
  kPlaces,  // those of them that are of x
};

/// y = the mean of each window; outside x are zeros. The dilation is 1. Sums in f32.
void mean_pooling_forward(const Tensor& y, const Tensor& x, const Window& window, Divisor divisor,
                          const Stream& stream);
/// dx = the gradient of x, overwritten.
void mean_pooling_backward(const Tensor& dx, const Tensor& dy, const Window& window,
                           Divisor divisor, const Stream& stream);

/// y = the largest of each window's places of x, NaN if one is; places: i32 of y's shape, which of the
/// example's places that is, the first of equals.
void max_pooling_forward(const Tensor& y, const Tensor& places, const Tensor& x,
                         const Window& window, const Stream& stream);
/// dx = the gradient of x, overwritten. places: of forward.
void max_pooling_backward(const Tensor& dx, const Tensor& dy, const Tensor& places,
                          const Window& window, const Stream& stream);

enum class Interpolation {
  kNearest,  // each place is repeated
  kLinear,   // between the middles of places, as PyTorch's align_corners=False
};

/// y = x with `factors` times as many places in each dimension. x: (B, D1..Dn, C), n from 1 to 3; y: (B,
/// f1·D1..fn·Dn, C), f32 or bf16, of one dtype; whole factors of at least 1. Sums in f32.
void upsampling_forward(const Tensor& y, const Tensor& x, const SpatialSizes& factors,
                        Interpolation interpolation, const Stream& stream);
/// dx = the gradient of x, overwritten.
void upsampling_backward(const Tensor& dx, const Tensor& dy, const SpatialSizes& factors,
                         Interpolation interpolation, const Stream& stream);

/// (B, f1·D1..fn·Dn, C).
Shape upsampled_shape(const Shape& x, const SpatialSizes& factors);

struct ConvolutionSpec {
  bool silu = true;        // y = silu of the sum; else the sum
  std::int64_t ahead = 0;  // taps that look at tokens after a token's own; 0: causal
};
inline constexpr std::int64_t kMostTaps = 16;

/// Convolution along the tokens, each channel by itself: y[t, c] = silu(bias[c] + Σ_τ weight[c, τ]·
/// x[t − K + 1 + ahead + τ, first + c]). x: (B, T, any), of which columns [first, first + C) are
/// read; y: (B, T, C); both f32 or bf16, of one dtype. weight: (C, K) f32, K at most kMostTaps; bias:
/// (C) f32 or undefined. before: (B, K − 1 − ahead, C) of x's dtype, the rows before the first, or
/// undefined: zeros. positions: (B, T) i32, each token's place in its document, or undefined where a
/// sequence is one document: a tap reads tokens of its own document alone, and those of `before`
/// where the first token's position says that its document began there. Sums in f32.
void causal_convolution_forward(const Tensor& y, const Tensor& x, std::int64_t first,
                                const Tensor& weight, const Tensor& bias, const Tensor& before,
                                const Tensor& positions, ConvolutionSpec spec,
                                const Stream& stream);

/// Columns [first, first + C) of dx = the gradient of those of x; the others stay. dweight, dbias
/// (+)= theirs as `mode` says, f32, summed in a fixed order; undefined where not wanted. dbefore: as
/// `before`, overwritten; undefined where not wanted. The sum before silu is computed again.
void causal_convolution_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                                 GradientMode mode, const Tensor& dbefore, const Tensor& dy,
                                 const Tensor& x, std::int64_t first, const Tensor& weight,
                                 const Tensor& bias, const Tensor& before, const Tensor& positions,
                                 ConvolutionSpec spec, const Stream& stream);

/// One token of each of N texts, for generation; causal. x: (N, any), y: (N, C), state: (texts, K −
/// 1, C) of x's dtype, the last rows of each text, to which these join. texts: (N) i32, each text
/// once, which nothing checks. A row has the same bits whatever rows are beside it.
void causal_convolution_step(const Tensor& y, const Tensor& state, const Tensor& x,
                             std::int64_t first, const Tensor& weight, const Tensor& bias,
                             const Tensor& texts, ConvolutionSpec spec, const Stream& stream);

}  // namespace hybrid_trainer::kernels
