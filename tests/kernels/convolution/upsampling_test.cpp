#include "hybrid_trainer/kernels/convolution.h"

#include <algorithm>

#include "tests/kernels/convolution/window_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Input positions and their weights for output position `at` of one dimension, by definition.
std::vector<std::pair<std::int64_t, double>> shares_of(std::int64_t at, std::int64_t size,
                                                       std::int64_t factor,
                                                       Interpolation interpolation) {
  if (interpolation == Interpolation::kNearest) return {{at / factor, 1.0}};
  const double middle =
      std::max(0.0, (static_cast<double>(at) + 0.5) / static_cast<double>(factor) - 0.5);
  const auto low = static_cast<std::int64_t>(middle);
  const double share = middle - static_cast<double>(low);
  return {{low, 1 - share}, {std::min(low + 1, size - 1), share}};
}

struct UpsamplingReference {
  Values y, dx;

  UpsamplingReference(const Shape& x_shape, const SpatialSizes& factors,
                      Interpolation interpolation, const Values& x, const Values& dy)
      : y(dy.size(), 0.0), dx(x.size(), 0.0) {
    std::int64_t in[3] = {1, 1, 1}, factor[3] = {1, 1, 1};
    for (int i = 0; i < spatial_rank(x_shape); ++i) {
      in[i] = x_shape[i + 1];
      factor[i] = factors[static_cast<std::size_t>(i)];
    }
    const std::int64_t channels = x_shape[x_shape.rank() - 1], inputs = in[0] * in[1] * in[2],
                       outputs = inputs * factor[0] * factor[1] * factor[2];
    const std::int64_t wide = in[2] * factor[2], high = in[1] * factor[1];
    for (std::int64_t row = 0; row < x_shape[0] * outputs; ++row) {
      const std::int64_t at = row % outputs;
      for (const auto& [p0, s0] : shares_of(at / (wide * high), in[0], factor[0], interpolation))
        for (const auto& [p1, s1] : shares_of(at / wide % high, in[1], factor[1], interpolation))
          for (const auto& [p2, s2] : shares_of(at % wide, in[2], factor[2], interpolation))
            for (std::int64_t c = 0; c < channels; ++c) {
              const auto from = static_cast<std::size_t>(
                  (row / outputs * inputs + (p0 * in[1] + p1) * in[2] + p2) * channels + c);
              const auto to = static_cast<std::size_t>(row * channels + c);
              y[to] += s0 * s1 * s2 * x[from];
              dx[from] += s0 * s1 * s2 * dy[to];
            }
    }
  }
};

TEST(Upsampling, MatchesReferenceOnRandomShapes) {
  const Stream stream = cpu_stream();
  ShapeDraws draws(31);
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    const DType dtype = i % 2 == 0 ? DType::kF32 : DType::kBF16;
    const Interpolation interpolation =
        draws.coin() ? Interpolation::kLinear : Interpolation::kNearest;
    Shape shape{draws.between(1, 2)};
    SpatialSizes factors{1, 1, 1};
    const std::int64_t rank = draws.between(1, 3);
    for (std::size_t k = 0; k < static_cast<std::size_t>(rank); ++k) {
      shape.append(draws.between(1, 6));
      factors[k] = draws.between(1, 4);
    }
    shape.append(draws.between(1, i % 20 == 0 ? 150 : 9));
    const Tensor x = random_tensor(shape, dtype, 1, stream),
                 dy = random_tensor(upsampled_shape(shape, factors), dtype, 2, stream);
    const Tensor y = Tensor::empty_like(dy, MemoryKind::kActivations, stream),
                 dx = Tensor::empty_like(x, MemoryKind::kActivations, stream);
    upsampling_forward(y, x, factors, interpolation, stream);
    upsampling_backward(dx, dy, factors, interpolation, stream);
    const UpsamplingReference wanted(shape, factors, interpolation, values_of(x), values_of(dy));
    const double tolerance = dtype == DType::kF32 ? 2e-6 : 5e-3;
    expect_near_all(y, wanted.y, tolerance, shape.text() + ": y");
    expect_near_all(dx, wanted.dx, tolerance, shape.text() + ": dx");
  }
}

/// Values of torch.nn.functional.interpolate(scale_factor=2, align_corners=False) for 0, 4, 8.
TEST(Upsampling, InterpolationMatchesPyTorch) {
  const Stream stream = cpu_stream();
  const Tensor x = tensor_of({0, 4, 8}, {1, 3, 1}, DType::kF32, stream);
  const Tensor y = Tensor::empty({1, 6, 1}, DType::kF32, MemoryKind::kActivations, stream);
  upsampling_forward(y, x, {2}, Interpolation::kLinear, stream);
  EXPECT_EQ(values_of(y), (Values{0, 1, 3, 5, 7, 8}));
  upsampling_forward(y, x, {2}, Interpolation::kNearest, stream);
  EXPECT_EQ(values_of(y), (Values{0, 0, 4, 4, 8, 8}));
}

TEST(Upsampling, RefusesMismatchedFactorsAndShapes) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({1, 3, 1}, DType::kF32, 1, stream),
               y = random_tensor({1, 6, 1}, DType::kF32, 1, stream);
  EXPECT_THROW(upsampling_forward(y, x, {0}, Interpolation::kNearest, stream), ShapeMismatch);
  EXPECT_THROW(upsampling_forward(y, x, {3}, Interpolation::kNearest, stream), ShapeMismatch);
  EXPECT_THROW(upsampling_backward(y, x, {2}, Interpolation::kNearest, stream), ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
