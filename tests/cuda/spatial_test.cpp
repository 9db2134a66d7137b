#include <algorithm>

#include "hybrid_trainer/kernels/convolution.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/normalization.h"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Tolerance of sums of a few hundred terms of both signs in different orders.
double spatial_tolerance(DType dtype) { return dtype == DType::kF32 ? 2e-5 : 3e-2; }

struct SpatialCase {
  Shape x;
  Window window;
  std::int64_t outputs, groups = 1;
  bool bias = true;

  std::string text(DType dtype) const {
    return concat("x ", x.text(), ", ", outputs, " outputs, ", groups, " groups, ", name_of(dtype));
  }
  std::int64_t channels() const { return x[x.rank() - 1]; }
  /// {y, x, weight, bias, dx, dweight}; y also serves as dy.
  Tensors tensors(DType dtype, const Stream& host) const {
    const Shape weight{outputs, window.taps(spatial_rank(x)) * channels() / groups};
    return {random_tensor(window_outputs(x, window, outputs), dtype, 1, host),
            random_tensor(x, dtype, 2, host),
            random_tensor(weight, dtype, 3, host, 0.2),
            bias ? random_tensor({outputs}, DType::kF32, 4, host) : Tensor{},
            random_tensor(x, dtype, 5, host),
            random_tensor(weight, DType::kF32, 6, host)};
  }
};

/// Channels with and without vector loads, all dimensions, strides above the kernel size, groups.
const std::vector<SpatialCase> kSpatialCases{
    {{2, 3, 5, 6, 3}, {{3, 3, 3}, {1, 2, 2}, {1, 1, 1}}, 5},
    {{1, 2, 4, 3, 8}, {{2, 3, 2}, {1, 1, 1}, {1, 2, 0}, {1, 1, 2}}, 8, 1, false},
    {{2, 9, 4}, {{3, 1, 1}, {2, 1, 1}, {1, 0, 0}}, 7},
    {{1, 7, 8, 5}, {{2, 2, 1}, {3, 3, 1}}, 3},
    {{2, 5, 4, 8}, {}, 4},
    {{2, 5, 4, 6}, {{3, 2, 1}, {1, 2, 1}, {1, 1, 0}}, 9, 3},
    {{1, 6, 5, 7}, {{3, 3, 1}, {2, 1, 1}, {1, 1, 0}}, 7, 7},
};

TEST(CudaSpatial, ConvolutionMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const SpatialCase& one : kSpatialCases) {
      const GradientMode mode =
          one.x[0] == 1 ? GradientMode::kAccumulate : GradientMode::kOverwrite;
      expect_like_cpu(one.tensors(dtype, host), spatial_tolerance(dtype), one.text(dtype),
                      [&](const Tensors& t, const Stream& s) {
                        convolution_backward_input(t[4], t[0], t[2], one.window, one.groups, s);
                        convolution_backward_weight(t[5], t[0], t[1], one.window, one.groups, mode,
                                                    s);
                        convolution_forward(t[0], t[1], t[2], t[3], one.window, one.groups, s);
                      });
    }
  }
}

TEST(CudaSpatial, PoolingMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const SpatialCase& one : kSpatialCases) {
      if (one.window.dilation[2] != 1 || one.groups > 1) continue;
      Window window = one.window;
      for (std::size_t i = 0; i < 3; ++i)
        window.padding[i] = std::min(window.padding[i], window.kernel[i] / 2);
      const Shape out = window_outputs(one.x, window, one.channels());
      for (const Divisor divisor : {Divisor::kWindow, Divisor::kPlaces}) {
        expect_like_cpu({random_tensor(out, dtype, 1, host), random_tensor(one.x, dtype, 2, host),
                         random_tensor(one.x, dtype, 3, host),
                         Tensor::zeros(out, DType::kI32, MemoryKind::kActivations, host),
                         random_tensor(out, dtype, 4, host)},
                        spatial_tolerance(dtype), one.text(dtype),
                        [&](const Tensors& t, const Stream& s) {
                          mean_pooling_backward(t[2], t[0], window, divisor, s);
                          if (divisor == Divisor::kPlaces) {
                            max_pooling_forward(t[4], t[3], t[1], window, s);
                            max_pooling_backward(t[2], t[0], t[3], window, s);
                          }
                          mean_pooling_forward(t[0], t[1], window, divisor, s);
                        });
      }
    }
  }
}

TEST(CudaSpatial, UpsamplingMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const Shape& shape : {Shape{2, 3, 2, 4, 3}, Shape{1, 4, 3, 8}, Shape{2, 5, 1}}) {
      for (const Interpolation how : {Interpolation::kNearest, Interpolation::kLinear}) {
        const SpatialSizes factors{2, 3, 1};
        expect_like_cpu(
            {random_tensor(upsampled_shape(shape, factors), dtype, 1, host),
             random_tensor(shape, dtype, 2, host), random_tensor(shape, dtype, 3, host)},
            spatial_tolerance(dtype), shape.text(), [&](const Tensors& t, const Stream& s) {
              upsampling_backward(t[2], t[0], factors, how, s);
              upsampling_forward(t[0], t[1], factors, how, s);
            });
      }
    }
  }
}

TEST(CudaSpatial, GroupNormMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const auto& [shape, groups] : {std::pair<Shape, std::int64_t>{{2, 5, 6}, 3},
                                        {{1, 300, 40}, 5},
                                        {{2, 1, 8}, 1},
                                        {{2, 70, 7}, 7}}) {
      const Shape channels{shape[2]}, statistics{shape[0], groups};
      const GradientMode mode = groups == 5 ? GradientMode::kAccumulate : GradientMode::kOverwrite;
      const auto vector = [&](std::uint64_t seed) {
        return random_tensor(channels, DType::kF32, seed, host);
      };
      // Excludes groups of a single number, whose gradient is only a cancellation's rounding error.
      expect_like_cpu(
          {random_tensor(shape, dtype, 1, host), random_tensor(shape, dtype, 2, host),
           random_tensor(shape, dtype, 3, host), vector(4), vector(5), vector(6), vector(7),
           random_tensor(statistics, DType::kF32, 8, host),
           random_tensor(statistics, DType::kF32, 9, host)},
          spatial_tolerance(dtype), shape.text(), [&](const Tensors& t, const Stream& s) {
            group_norm_forward(t[0], t[7], t[8], t[1], t[3], t[4], groups, 1e-2f, s);
            group_norm_backward(t[2], t[5], t[6], mode, t[2], t[1], t[7], t[8], t[3], s);
          });
    }
  }
}

TEST(CudaSpatial, ActivationsMatchCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const ActivationKind kind :
         {ActivationKind::kRelu, ActivationKind::kSilu, ActivationKind::kGelu}) {
      expect_like_cpu({random_tensor({5, 7}, dtype, 1, host), random_tensor({5, 7}, dtype, 2, host),
                       random_tensor({5, 7}, dtype, 3, host)},
                      spatial_tolerance(dtype), "activation",
                      [&](const Tensors& t, const Stream& s) {
                        activation_backward(t[2], t[2], t[1], kind, s);
                        activation_forward(t[0], t[1], kind, s);
                      });
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
