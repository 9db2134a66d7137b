#include "hybrid_trainer/kernels/normalization.h"

#include "src/core/machine.h"
#include "tests/kernels/convolution/window_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr double kGroupEpsilon = 1e-5;

struct GroupNormReference {
  Values y, dx, dweight, dbias;

  GroupNormReference(const Shape& shape, std::int64_t groups, const Values& x, const Values& weight,
                     const Values& bias, const Values& dy)
      : y(x.size()), dx(x.size()), dweight(weight.size(), 0.0), dbias(weight.size(), 0.0) {
    const std::int64_t channels = shape[2], of_group = channels / groups,
                       count = shape[1] * of_group;
    for (std::int64_t i = 0; i < shape[0] * groups; ++i) {
      const auto each = [&](const auto& visit) {
        for (std::int64_t k = 0; k < count; ++k) {
          const std::int64_t c = i % groups * of_group + k % of_group;
          visit(static_cast<std::size_t>((i / groups * shape[1] + k / of_group) * channels + c),
                static_cast<std::size_t>(c));
        }
      };
      double mean = 0, variance = 0, sum = 0, projection = 0;
      const auto n = static_cast<double>(count);
      each([&](std::size_t at, std::size_t) { mean += x[at] / n; });
      each([&](std::size_t at, std::size_t) { variance += std::pow(x[at] - mean, 2) / n; });
      const double rstd = 1 / std::sqrt(variance + kGroupEpsilon);
      each([&](std::size_t at, std::size_t c) {
        const double normalized = (x[at] - mean) * rstd;
        y[at] = normalized * weight[c] + bias[c];
        dbias[c] += dy[at];
        dweight[c] += dy[at] * normalized;
        sum += dy[at] * weight[c] / n;
        projection += dy[at] * weight[c] * normalized / n;
      });
      each([&](std::size_t at, std::size_t c) {
        dx[at] = (dy[at] * weight[c] - sum - (x[at] - mean) * rstd * projection) * rstd;
      });
    }
  }
};

struct GroupNormTensors {
  GroupNormTensors(const Shape& shape, std::int64_t groups_, DType dtype, const Stream& stream)
      : groups(groups_),
        x(random_tensor(shape, dtype, 1, stream)),
        dy(random_tensor(shape, dtype, 2, stream)),
        weight(random_tensor({shape[2]}, DType::kF32, 3, stream)),
        bias(random_tensor({shape[2]}, DType::kF32, 4, stream)),
        y(Tensor::empty_like(x, MemoryKind::kActivations, stream)),
        dx(Tensor::empty_like(x, MemoryKind::kActivations, stream)),
        dweight(Tensor::zeros({shape[2]}, DType::kF32, MemoryKind::kActivations, stream)),
        dbias(Tensor::zeros({shape[2]}, DType::kF32, MemoryKind::kActivations, stream)),
        mean(Tensor::zeros({shape[0], groups}, DType::kF32, MemoryKind::kActivations, stream)),
        rstd(Tensor::zeros({shape[0], groups}, DType::kF32, MemoryKind::kActivations, stream)) {}
  void run(GradientMode mode, const Stream& stream) const {
    group_norm_forward(y, mean, rstd, x, weight, bias, groups, static_cast<float>(kGroupEpsilon),
                       stream);
    group_norm_backward(dx, dweight, dbias, mode, dy, x, mean, rstd, weight, stream);
  }
  GroupNormReference reference() const {
    return {x.shape(), groups, values_of(x), values_of(weight), values_of(bias), values_of(dy)};
  }
  std::int64_t groups;
  Tensor x, dy, weight, bias, y, dx, dweight, dbias, mean, rstd;
};

void expect_group_norm(const Shape& shape, std::int64_t groups, DType dtype, const Stream& stream) {
  const GroupNormTensors t(shape, groups, dtype, stream);
  t.run(GradientMode::kOverwrite, stream);
  const GroupNormReference wanted = t.reference();
  const std::string text = concat(shape.text(), " in ", groups, " groups");
  const double rounded = dtype == DType::kF32 ? 1e-5 : 5e-3;
  expect_near_all(t.y, wanted.y, rounded, text + ": y");
  expect_near_all(t.dbias, wanted.dbias, 1e-5, text + ": dbias");
  // The gradient of a group of one number is 0; the result is only rounding error.
  if (shape[1] * shape[2] == groups) return;
  expect_near_all(t.dx, wanted.dx, rounded, text + ": dx");
  expect_near_all(t.dweight, wanted.dweight, 1e-5, text + ": dweight");
}

TEST(GroupNorm, MatchesReferenceOnRandomShapes) {
  const Stream stream = cpu_stream();
  ShapeDraws draws(41);
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    const std::int64_t groups = draws.between(1, 5);
    expect_group_norm({draws.between(1, 3), draws.between(1, 60), groups * draws.between(1, 9)},
                      groups, i % 2 == 0 ? DType::kF32 : DType::kBF16, stream);
  }
}

TEST(GroupNorm, MatchesReferenceAcrossChunks) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    expect_group_norm({2, 1201, 66}, 33, dtype, stream);
    expect_group_norm({1, 3, 40000}, 5, dtype, stream);
  }
}

/// The mean is a thousand times the deviation.
TEST(GroupNorm, StaysAccurateWithLargeMean) {
  const Stream stream = cpu_stream();
  const GroupNormTensors t({2, 5000, 8}, 2, DType::kF32, stream);
  for (std::int64_t i = 0; i < t.x.elements(); ++i) t.x.data<float>()[i] += 1000;
  t.run(GradientMode::kOverwrite, stream);
  expect_near_all(t.y, t.reference().y, 1e-4, "y");
}

TEST(GroupNorm, AccumulatesGradientsAndSupportsInPlace) {
  const Stream stream = cpu_stream();
  const GroupNormTensors t({2, 7, 6}, 3, DType::kF32, stream);
  t.run(GradientMode::kOverwrite, stream);
  const Tensor once = clone(t.dx, stream);
  group_norm_backward(t.dy, t.dweight, t.dbias, GradientMode::kAccumulate, t.dy, t.x, t.mean,
                      t.rstd, t.weight, stream);
  expect_same_bits(t.dy, once);
  const GroupNormTensors fresh({2, 7, 6}, 3, DType::kF32, stream);
  GroupNormReference wanted = fresh.reference();
  for (double& value : wanted.dweight) value *= 2;
  for (double& value : wanted.dbias) value *= 2;
  expect_close(t.dweight, wanted.dweight, 1e-5);
  expect_close(t.dbias, wanted.dbias, 1e-5);
}

TEST(GroupNorm, ThreadCountDoesNotChangeBits) {
  const Stream stream = cpu_stream();
  const int all = threads();
  std::vector<GroupNormTensors> results;
  for (const int count : {1, all}) {
    set_threads(count);
    results.emplace_back(Shape{2, 3000, 24}, 4, DType::kF32, stream);
    results.back().run(GradientMode::kOverwrite, stream);
  }
  set_threads(all);
  expect_same_bits(results[0].y, results[1].y);
  expect_same_bits(results[0].dx, results[1].dx);
  expect_same_bits(results[0].dweight, results[1].dweight);
}

TEST(GroupNorm, RefusesGroupsNotDividingChannels) {
  const Stream stream = cpu_stream();
  const GroupNormTensors t({2, 7, 6}, 3, DType::kF32, stream);
  const auto forward = [&](std::int64_t groups) {
    group_norm_forward(t.y, Tensor(), Tensor(), t.x, t.weight, t.bias, groups, 1e-5f, stream);
  };
  EXPECT_NO_THROW(forward(2));
  EXPECT_THROW(forward(4), ShapeMismatch);
  EXPECT_THROW(forward(0), ShapeMismatch);
  EXPECT_THROW(group_norm_forward(t.y, t.mean, t.rstd, t.x, t.weight, t.bias, 2, 1e-5f, stream),
               ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
