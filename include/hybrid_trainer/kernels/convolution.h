#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Sizes along up to three spatial dimensions. Extra entries are ignored.
using SpatialSizes = std::array<std::int64_t, 3>;

/// Sliding windows over the positions of x (B, D1..Dn, C), n from 1 to 3.
struct Window {
  SpatialSizes kernel{1, 1, 1};
  SpatialSizes stride{1, 1, 1};
  SpatialSizes padding{0, 0, 0};  // on both sides
  SpatialSizes dilation{1, 1, 1};

  /// Returns the number of positions that a window spans along dimension i, including dilation.
  std::int64_t reach(std::size_t i) const { return (kernel[i] - 1) * dilation[i] + 1; }
  /// Returns the number of taps of a window over n dimensions.
  std::int64_t taps(int n) const;
  /// Returns the number of windows along dimension i of `size` positions.
  std::int64_t outputs(std::size_t i, std::int64_t size) const;
};

/// Returns the number of spatial dimensions of a tensor (B, D1..Dn, C).
inline int spatial_rank(const Shape& x) { return x.rank() - 2; }
/// Returns the number of positions of an example: D1·…·Dn.
std::int64_t places_of(const Shape& x);
/// Returns the shape (B, O1..On, channels). Each output position is one window of x.
Shape window_outputs(const Shape& x, const Window& window, std::int64_t channels);

// Convolution over one to three dimensions, channels last. x: (B, D1..Dn, C); weight: (O,
// taps·C/groups), ordered by tap (last dimension fastest), then channel of the group; y: (B,
// O1..On, O). All f32 or bf16, of one dtype. Each of `groups` equal groups of outputs reads its
// group of inputs. Pads with zeros. Accumulates in f32, in an order that depends only on the sizes.

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

/// y = the maximum of each window, or NaN if the window contains NaN. places: i32 shaped like y,
/// the index of the maximum's position in its example; the first position if several are equal.
void max_pooling_forward(const Tensor& y, const Tensor& places, const Tensor& x,
                         const Window& window, const Stream& stream);
/// dx = the gradient of x, overwritten. places: from forward.
void max_pooling_backward(const Tensor& dx, const Tensor& dy, const Tensor& places,
                          const Window& window, const Stream& stream);

enum class Interpolation {
  kNearest,  // repeats positions
  kLinear,   // PyTorch's align_corners=False
};

/// y = x upsampled by `factors` >= 1, of one dtype, f32 or bf16. Accumulates in f32.
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

/// Computes a depthwise convolution along tokens: y[t, c] = silu(bias[c] + Σ_τ weight[c, τ]· x[t −
/// K + 1 + ahead + τ, first + c]). x: (B, T, any); y: (B, T, C); f32 or bf16, of one dtype. weight:
/// (C, K) f32, K at most kMaxTaps; bias: (C) f32 or undefined. before: (B, K − 1 − ahead, C), the
/// rows before the first; undefined: zeros. positions: (B, T) i32; undefined: one document per
/// sequence. Taps read only their document, which extends into `before` unless its first position
/// is 0. Accumulates in f32.
void causal_convolution_forward(const Tensor& y, const Tensor& x, std::int64_t first,
                                const Tensor& weight, const Tensor& bias, const Tensor& before,
                                const Tensor& positions, ConvolutionSpec spec,
                                const Stream& stream);

/// Writes the gradient of x to columns [first, first + C) of dx. dweight, dbias (+)= f32 gradients,
/// summed in a fixed order. dbefore = the gradient of `before`. dweight, dbias and dbefore may be
/// undefined.
void causal_convolution_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                                 GradientMode mode, const Tensor& dbefore, const Tensor& dy,
                                 const Tensor& x, std::int64_t first, const Tensor& weight,
                                 const Tensor& bias, const Tensor& before, const Tensor& positions,
                                 ConvolutionSpec spec, const Stream& stream);

/// Computes the causal convolution of one new token of each of N texts. x: (N, any), y: (N, C),
/// state: (texts, K − 1, C), the last rows of each text, updated. texts: (N) i32, each at most once
/// (unchecked).
void causal_convolution_step(const Tensor& y, const Tensor& state, const Tensor& x,
                             std::int64_t first, const Tensor& weight, const Tensor& bias,
                             const Tensor& texts, ConvolutionSpec spec, const Stream& stream);

}  // namespace hybrid_trainer::kernels
