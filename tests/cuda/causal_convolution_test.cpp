#include "hybrid_trainer/kernels/convolution.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr std::int64_t kConvolutionBatch = 2,
                       kConvolutionBeyond = 8;  // columns before and after the channels

/// Two sequences of T tokens; if packed, of documents of 5, the first begun 3 tokens before.
struct ConvolutionCase {
  std::int64_t length, channels, taps;
  ConvolutionSpec spec = {};
  bool packed = false, has_before = true, has_bias = true;
  DType dtype = DType::kF32;

  std::string text() const {
    return concat("T ", length, ", C ", channels, ", K ", taps, ", ahead ", spec.ahead,
                  packed ? ", packed " : " ", name_of(dtype));
  }
  Tensor real(const Shape& shape, std::uint64_t seed, const Stream& host) const {
    return random_tensor(shape, dtype, seed, host);
  }
  Tensor positions(const Stream& host) const {
    if (!packed) return {};
    Values places;
    for (std::int64_t i = 0; i < kConvolutionBatch * length; ++i)
      places.push_back(static_cast<double>((i % length + 3) % 5));
    return tensor_of(places, {kConvolutionBatch, length}, DType::kI32, host);
  }
  /// {x, weight, bias, before, positions}.
  Tensors inputs(const Stream& host) const {
    return {
        real({kConvolutionBatch, length, channels + 2 * kConvolutionBeyond}, 1, host),
        random_tensor({channels, taps}, DType::kF32, 2, host),
        has_bias ? random_tensor({channels}, DType::kF32, 3, host) : Tensor{},
        has_before ? real({kConvolutionBatch, taps - 1 - spec.ahead, channels}, 4, host) : Tensor{},
        positions(host)};
  }
};

/// Runs of several threads, taps of each kind of kernel, rows with and without vector loads.
const std::vector<ConvolutionCase> kConvolutionCases{
    {.length = 37, .channels = 8, .taps = 4},
    {.length = 70, .channels = 8, .taps = 4, .packed = true},
    {.length = 1, .channels = 8, .taps = 4, .packed = true},
    {.length = 5, .channels = 3, .taps = 2, .spec = {.silu = false}, .has_before = false},
    {.length = 34, .channels = 5, .taps = 1},
    {.length = 40, .channels = 8, .taps = 7, .spec = {.ahead = 3}, .packed = true},
    {.length = 33, .channels = 4, .taps = 4, .spec = {.ahead = 2}, .has_bias = false},
    {.length = 67, .channels = 2, .taps = 16, .packed = true, .dtype = DType::kBF16},
    {.length = 35, .channels = 8, .taps = 3, .packed = true, .dtype = DType::kBF16},
};

double convolution_tolerance(DType dtype) { return dtype == DType::kF32 ? 1e-5 : 2e-2; }

TEST(CudaConvolution, ForwardMatchesCpu) {
  const Stream host = cpu_stream();
  for (const ConvolutionCase& one : kConvolutionCases) {
    Tensors tensors = one.inputs(host);
    tensors.push_back(one.real({kConvolutionBatch, one.length, one.channels}, 5, host));
    expect_like_cpu(tensors, convolution_tolerance(one.dtype), one.text(),
                    [&](const Tensors& t, const Stream& s) {
                      causal_convolution_forward(t[5], t[0], kConvolutionBeyond, t[1], t[2], t[3],
                                                 t[4], one.spec, s);
                    });
  }
}

TEST(CudaConvolution, BackwardMatchesCpu) {
  const Stream host = cpu_stream();
  for (const ConvolutionCase& one : kConvolutionCases) {
    for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
      if (mode == GradientMode::kAccumulate && one.length != 70) continue;
      Tensors tensors = one.inputs(host);
      tensors.push_back(one.real({kConvolutionBatch, one.length, one.channels}, 5, host));
      tensors.push_back(one.real(tensors[0].shape(), 6, host));
      tensors.push_back(random_tensor(tensors[1].shape(), DType::kF32, 7, host));
      tensors.push_back(one.has_bias ? random_tensor({one.channels}, DType::kF32, 8, host)
                                     : Tensor{});
      tensors.push_back(one.has_before ? one.real(tensors[3].shape(), 9, host) : Tensor{});
      expect_like_cpu(tensors, convolution_tolerance(one.dtype), one.text(),
                      [&](const Tensors& t, const Stream& s) {
                        causal_convolution_backward(t[6], t[7], t[8], mode, t[9], t[5], t[0],
                                                    kConvolutionBeyond, t[1], t[2], t[3], t[4],
                                                    one.spec, s);
                      });
    }
  }
}

TEST(CudaConvolution, StepMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const auto& [channels, taps] : {std::pair{8, 4}, {5, 2}, {8, 1}, {3, 16}}) {
      const auto real = [&](const Shape& shape, std::uint64_t seed) {
        return random_tensor(shape, dtype, seed, host);
      };
      expect_like_cpu(
          {real({2, channels}, 1), real({3, taps - 1, channels}, 2), real({2, channels + 8}, 3),
           random_tensor({channels, taps}, DType::kF32, 4, host),
           random_tensor({channels}, DType::kF32, 5, host),
           tensor_of({2, 0}, {2}, DType::kI32, host)},
          convolution_tolerance(dtype), concat(channels, " channels, ", taps, name_of(dtype)),
          [](const Tensors& t, const Stream& s) {
            causal_convolution_step(t[0], t[1], t[2], 8, t[3], t[4], t[5], {}, s);
            causal_convolution_step(t[0], t[1], t[2], 8, t[3], t[4], t[5], {.silu = false}, s);
          });
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
