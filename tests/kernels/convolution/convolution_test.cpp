#include "tests/kernels/convolution/convolution_case.h"

#include <fstream>

#include "src/core/machine.h"

namespace hybrid_trainer::kernels {
namespace {

struct ConvolutionTensors {
  ConvolutionTensors(const ConvolutionSizes& sizes_, DType dtype, const Stream& stream)
      : sizes(sizes_),
        x(random_tensor(sizes.of.x, dtype, 1, stream)),
        weight(random_tensor(sizes.weight(), dtype, 2, stream)),
        dy(random_tensor(sizes.y(), dtype, 4, stream)),
        y(Tensor::empty(sizes.y(), dtype, MemoryKind::kActivations, stream)),
        dx(Tensor::empty(sizes.of.x, dtype, MemoryKind::kActivations, stream)),
        dweight(Tensor::zeros(sizes.weight(), DType::kF32, MemoryKind::kActivations, stream)) {
    if (sizes.bias) bias = random_tensor({sizes.outputs}, DType::kF32, 3, stream);
  }
  void run(GradientMode mode, const Stream& stream) const {
    const Window& window = sizes.of.window;
    convolution_forward(y, x, weight, bias, window, sizes.groups, stream);
    convolution_backward_input(dx, dy, weight, window, sizes.groups, stream);
    convolution_backward_weight(dweight, dy, x, window, sizes.groups, mode, stream);
  }
  ConvolutionReference reference() const {
    return {sizes, values_of(x), values_of(weight), bias ? values_of(bias) : Values{},
            values_of(dy)};
  }
  ConvolutionSizes sizes;
  Tensor x, weight, bias, dy, y, dx, dweight;
};

ConvolutionSizes random_convolution(ShapeDraws& draws) {
  ConvolutionSizes sizes{random_window(draws, 9, 7, false)};
  sizes.bias = draws.coin();
  sizes.outputs = draws.between(1, draws.between(1, 5) == 1 ? 70 : 9);
  const std::int64_t kind = draws.between(0, 5);
  if (kind == 0) sizes.groups = sizes.outputs = sizes.of.channels();
  if (kind == 1) {
    sizes.groups = draws.between(2, 4);
    Shape wide{sizes.of.x[0]};
    for (int i = 0; i < sizes.of.rank(); ++i) wide.append(sizes.of.x[i + 1]);
    wide.append(sizes.groups * draws.between(1, 5));
    sizes.of.x = wide;
    sizes.outputs = sizes.groups * draws.between(1, 5);
  }
  return sizes;
}

void expect_convolution(const ConvolutionSizes& sizes, DType dtype, const Stream& stream) {
  const ConvolutionTensors tensors(sizes, dtype, stream);
  const ConvolutionReference wanted = tensors.reference();
  tensors.run(GradientMode::kOverwrite, stream);
  const double exact = 1e-5, rounded = dtype == DType::kF32 ? exact : 5e-3;
  expect_near_all(tensors.y, wanted.y, rounded, sizes.text() + ": y");
  expect_near_all(tensors.dx, wanted.dx, rounded, sizes.text() + ": dx");
  expect_near_all(tensors.dweight, wanted.dweight, exact, sizes.text() + ": dweight");
}

TEST(Convolution, MatchesReferenceOnRandomShapes) {
  const Stream stream = cpu_stream();
  ShapeDraws draws(11);
  for (int i = 0; i < 200 && !HasFailure(); ++i)
    expect_convolution(random_convolution(draws), DType::kF32, stream);
}

TEST(Convolution, MatchesReferenceOnRandomShapesInBf16) {
  const Stream stream = cpu_stream();
  ShapeDraws draws(12);
  for (int i = 0; i < 200 && !HasFailure(); ++i)
    expect_convolution(random_convolution(draws), DType::kBF16, stream);
}

/// Sizes with several slabs, panels, tiles and partial sums.
TEST(Convolution, MatchesReferenceAcrossTiles) {
  const Stream stream = cpu_stream();
  const ConvolutionSizes sizes[] = {
      {{{2, 9, 30, 27, 3}, {{3, 3, 3}, {1, 2, 2}, {1, 1, 1}}}, 32, 1, true},
      {{{1, 700, 40}, {{3}, {2}, {1}}}, 72, 1, true},
      {{{1, 40, 41, 33}, {{3, 3}, {1, 1}, {1, 1}}}, 65, 1, false},
      {{{1, 1300, 5}, {{7}, {1}, {3}}}, 3, 1, false},
      {{{2, 24, 24, 12}, {{3, 3}, {1, 1}, {1, 1}}}, 12, 3, false},
      {{{1, 20, 20, 300}, {{3, 3}, {2, 1}, {1, 0}}}, 300, 300, true},
  };
  for (const ConvolutionSizes& one : sizes)
    for (const DType dtype : kRealTypes) expect_convolution(one, dtype, stream);
}

TEST(Convolution, AccumulatesWeightGradient) {
  const Stream stream = cpu_stream();
  for (const std::int64_t groups : {1, 2, 4}) {
    const ConvolutionTensors tensors({{{2, 6, 5, 4}, {{3, 2}, {1, 2}, {1, 0}}}, 4, groups, false},
                                     DType::kF32, stream);
    tensors.run(GradientMode::kOverwrite, stream);
    tensors.run(GradientMode::kAccumulate, stream);
    Values twice = tensors.reference().dweight;
    for (double& value : twice) value *= 2;
    expect_near_all(tensors.dweight, twice, 1e-5, "groups");
  }
}

TEST(Convolution, ThreadCountDoesNotChangeBits) {
  const Stream stream = cpu_stream();
  const int all = threads();
  for (const DType dtype : kRealTypes) {
    for (const std::int64_t groups : {1, 3, 24}) {
      std::vector<Tensor> results;
      for (const int count : {1, all}) {
        set_threads(count);
        const ConvolutionTensors tensors(
            {{{2, 7, 21, 19, 24}, {{3, 3, 3}, {1, 2, 1}, {1, 1, 1}}}, 24, groups, true}, dtype,
            stream);
        tensors.run(GradientMode::kOverwrite, stream);
        results.insert(results.end(), {tensors.y, tensors.dx, tensors.dweight});
      }
      set_threads(all);
      for (std::size_t i = 3; i < results.size(); ++i) expect_same_bits(results[i], results[i % 3]);
    }
  }
}

/// The same numbers as in the Python script.
Values counted(std::int64_t count, std::int64_t factor) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<double>((i * factor + 11) % 41 - 20) / 16);
  return values;
}

/// Output of tests/golden/make_convolution_golden.py, whose weights are (outputs, channels, taps).
TEST(Convolution, ReferenceMatchesPyTorch) {
  std::ifstream file(HT_TEST_DATA_DIR "/convolution_golden.txt");
  std::string word;
  int cases = 0;
  for (std::int64_t rank = 0; file >> word >> rank; ++cases) {
    ConvolutionSizes sizes;
    Shape x;
    for (int i = 0; i < static_cast<int>(rank) + 2; ++i) {
      std::int64_t size = 0;
      file >> size;
      x.append(size);
    }
    sizes.of.x = x;
    for (SpatialSizes* each : {&sizes.of.window.kernel, &sizes.of.window.stride,
                               &sizes.of.window.padding, &sizes.of.window.dilation})
      for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) file >> (*each)[i];
    file >> sizes.outputs >> sizes.groups;
    const auto count = [](const Shape& shape) { return shape.elements(); };
    const ConvolutionReference reference(sizes, counted(count(x), 37),
                                         counted(count(sizes.weight()), 29),
                                         counted(sizes.outputs, 5), counted(count(sizes.y()), 23));
    for (const Values* values :
         {&reference.y, &reference.dx, &reference.dweight, &reference.dbias}) {
      for (std::size_t i = 0; i < values->size(); ++i) {
        double wanted = 0;
        file >> wanted;
        ASSERT_NEAR((*values)[i], wanted, 1e-5 * (1 + std::abs(wanted))) << sizes.text();
      }
    }
  }
  EXPECT_EQ(cases, 12);
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ShapeMismatch& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Convolution, RefusesInvalidWindowsAndReportsSizes) {
  const Stream stream = cpu_stream();
  const auto message = [&](const Shape& x, const Window& window, std::int64_t outputs = 2,
                           std::int64_t groups = 1) {
    const auto make = [&](const Shape& shape) {
      return random_tensor(shape, DType::kF32, 1, stream);
    };
    const std::int64_t taps = x.rank() > 2 && x.rank() < 6 ? window.taps(spatial_rank(x)) : 1;
    return refusal([&] {
      convolution_forward(make({1, 1, outputs}), make(x),
                          make({outputs, std::max<std::int64_t>(0, taps) * x[x.rank() - 1]}),
                          Tensor(), window, groups, stream);
    });
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(message({1, 5, 3}, {.kernel = {9}, .padding = {1}}),
                  "x is (1, 5, 3), dimension 1 has size 5; the kernel is 9"))
      << message({1, 5, 3}, {.kernel = {9}, .padding = {1}});
  EXPECT_TRUE(has(message({1, 5, 3}, {.kernel = {2}, .padding = {2}}), "want a padding below 2"));
  EXPECT_TRUE(has(message({1, 5, 3}, {.kernel = {0}}), "at least 1"));
  EXPECT_TRUE(has(message({1, 5, 3}, {.stride = {0}}), "at least 1"));
  EXPECT_TRUE(has(message({1, 5, 3}, {.padding = {-1}}), "at least 0"));
  EXPECT_TRUE(
      has(message({1, 5, 3}, {.kernel = {3}, .dilation = {3}}), "want a size of at least 7"));
  EXPECT_TRUE(has(message({1, 0, 3}, {}), "each at least 1"));
  EXPECT_TRUE(has(message({5, 3}, {}), "one to three spatial dimensions"));
  EXPECT_TRUE(has(message({1, 1, 3}, {}, 2, 2), "3 channels and 2 outputs in 2 groups"));
  EXPECT_TRUE(has(message({1, 1, 3}, {}, 2, 0), "in 0 groups"));
  EXPECT_EQ(message({1, 1, 3}, {}), "accepted");
}

TEST(Convolution, RefusesMismatchedShapes) {
  const Stream stream = cpu_stream();
  const ConvolutionTensors t({{{2, 6, 5, 4}, {{3, 2}, {1, 2}, {1, 0}}}, 4, 1, true}, DType::kF32,
                             stream);
  const Window& window = t.sizes.of.window;
  EXPECT_THROW(convolution_forward(t.x, t.x, t.weight, t.bias, window, 1, stream), ShapeMismatch);
  EXPECT_THROW(convolution_forward(t.y, t.x, t.x, t.bias, window, 1, stream), ShapeMismatch);
  EXPECT_THROW(convolution_forward(t.y, t.x, t.weight, t.weight, window, 1, stream), ShapeMismatch);
  EXPECT_THROW(convolution_backward_input(t.y, t.dy, t.weight, window, 1, stream), ShapeMismatch);
  EXPECT_THROW(
      convolution_backward_weight(t.weight, t.x, t.x, window, 1, GradientMode::kOverwrite, stream),
      ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
