#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// A number for each of up to three spatial dimensions; extra entries are ignored.
using SpatialSizes = std::array<std::int64_t, 3>;

/// Sliding windows over the positions of x (B, D1..Dn, C), n from 1 to 3.
struct Window {
  SpatialSizes kernel{1, 1, 1};
  SpatialSizes stride{1, 1, 1};
  SpatialSizes padding{0, 0, 0};  // on both sides
  SpatialSizes dilation{1, 1, 1};

  /// Returns the extent of a window including its dilation.
  std::int64_t reach(std::size_t i) const { return (kernel[i] - 1) * dilation[i] + 1; }
  /// Returns the number of taps over the first n dimensions.
  std::int64_t taps(int n) const;
  /// Returns the number of windows along dimension i of `size` positions.
  std::int64_t outputs(std::size_t i, std::int64_t size) const;
};

/// Returns the number of spatial dimensions of a tensor (B, D1..Dn, C).
inline int spatial_rank(const Shape& x) { return x.rank() - 2; }
/// Returns the number of positions of an example: D1·…·Dn.
std::int64_t places_of(const Shape& x);
/// Returns the shape (B, O1..On, channels), with one position per window over x.
Shape window_outputs(const Shape& x, const Window& window, std::int64_t channels);

// Convolution over one to three dimensions of space, channels last. x: (B, D1..Dn, C); weight:
// (O, taps·C/groups), each row ordered by tap, with the last spatial dimension fastest, then by
// channel of the group; y: (B, O1..On, O) (see window_outputs). All f32 or bf16, of one dtype.
// Channels and outputs form `groups` equal groups; an output reads the channels of its group. x is
// padded with zeros. Accumulates in f32, in an order that depends only on the sizes.

/// y[o] = bias + Σ weight·x over window o. bias: (O) f32 or undefined.
void convolution_forward(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Window& window, std::int64_t groups, const Stream& stream);

void convolution_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                const Window& window, std::int64_t groups, const Stream& stream);

/// dweight (+)= the gradient of weight, f32. For the bias use bias_backward on the rows of dy.
void convolution_backward_weight(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                 const Window& window, std::int64_t groups, GradientMode mode,
                                 const Stream& stream);

// Mean and max pooling over one to three spatial dimensions, channels last. x: (B, D1..Dn, C), y:
// (B, O1..On, C) (window_outputs), f32 or bf16, of one dtype. Padding is at most half the kernel.

/// Divisor of average pooling.
enum class Divisor {
  kWindow,  // all positions of the kernel, including padding (PyTorch's count_include_pad)
  kPlaces,  // positions inside x
};

/// y = the mean of each window, with zero padding. Dilation must be 1. Accumulates in f32.
void mean_pooling_forward(const Tensor& y, const Tensor& x, const Window& window, Divisor divisor,
                          const Stream& stream);
/// dx = the gradient of x, overwritten.
void mean_pooling_backward(const Tensor& dx, const Tensor& dy, const Window& window,
                           Divisor divisor, const Stream& stream);

/// y = the maximum of each window, NaN if it contains NaN; places: i32 shaped like y, the index of
/// the maximum's position in its example, or of the first one if several are equal.
void max_pooling_forward(const Tensor& y, const Tensor& places, const Tensor& x,
                         const Window& window, const Stream& stream);
/// dx = the gradient of x, overwritten. places: from forward.
void max_pooling_backward(const Tensor& dx, const Tensor& dy, const Tensor& places,
                          const Window& window, const Stream& stream);

enum class Interpolation {
  kNearest,  // repeats positions
  kLinear,   // PyTorch's align_corners=False
};

/// y = x upsampled by integer `factors` >= 1. x: (B, D1..Dn, C), n from 1 to 3; y: (B,
/// f1·D1..fn·Dn, C), f32 or bf16, of one dtype. Accumulates in f32.
void upsampling_forward(const Tensor& y, const Tensor& x, const SpatialSizes& factors,
                        Interpolation interpolation, const Stream& stream);
/// dx = the gradient of x, overwritten.
void upsampling_backward(const Tensor& dx, const Tensor& dy, const SpatialSizes& factors,
                         Interpolation interpolation, const Stream& stream);

/// Returns the shape (B, f1·D1..fn·Dn, C).
Shape upsampled_shape(const Shape& x, const SpatialSizes& factors);

struct ConvolutionSpec {
  bool silu = true;        // applies SiLU to the sum
  std::int64_t ahead = 0;  // taps on later tokens; 0: causal
};
inline constexpr std::int64_t kMaxTaps = 16;

/// Depthwise convolution along tokens: y[t, c] = silu(bias[c] + Σ_τ weight[c, τ]· x[t − K + 1 +
/// ahead + τ, first + c]). x: (B, T, any), read in columns [first, first + C); y: (B, T, C); both
/// f32 or bf16, of one dtype. weight: (C, K) f32, K at most kMaxTaps; bias: (C) f32 or undefined.
/// before: (B, K − 1 − ahead, C) of x's dtype, the rows before the first; undefined: zeros.
/// positions: (B, T) i32, the index of each token in its document; undefined: one document per
/// sequence. A tap reads only tokens of its document, which extends into `before` if the position
/// of the first token is not 0. Accumulates in f32.
void causal_convolution_forward(const Tensor& y, const Tensor& x, std::int64_t first,
                                const Tensor& weight, const Tensor& bias, const Tensor& before,
                                const Tensor& positions, ConvolutionSpec spec,
                                const Stream& stream);

/// Writes the gradient of x's columns [first, first + C) to these columns of dx; others are
/// unchanged. dweight, dbias (+)= the gradients of weight and bias, in f32 and in a fixed order;
/// dbefore = the gradient of `before`; each may be undefined. Recomputes the sum before SiLU.
void causal_convolution_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                                 GradientMode mode, const Tensor& dbefore, const Tensor& dy,
                                 const Tensor& x, std::int64_t first, const Tensor& weight,
                                 const Tensor& bias, const Tensor& before, const Tensor& positions,
                                 ConvolutionSpec spec, const Stream& stream);

/// Causal decoding step for one token of each of N texts. x: (N, any), y: (N, C), state: (texts, K
/// − 1, C) of x's dtype, the last rows of each text, which the call advances. texts: (N) i32, each
/// text at most once (unchecked). The bits of a row do not depend on other rows.
void causal_convolution_step(const Tensor& y, const Tensor& state, const Tensor& x,
                             std::int64_t first, const Tensor& weight, const Tensor& bias,
                             const Tensor& texts, ConvolutionSpec spec, const Stream& stream);

}  // namespace hybrid_trainer::kernels
