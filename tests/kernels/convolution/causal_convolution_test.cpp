#include "hybrid_trainer/kernels/convolution.h"

#include <algorithm>

#include "src/core/machine.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr GradientMode kNew = GradientMode::kOverwrite;

/// A convolution of columns [2, 2 + C) of rows of C + 3, with its reference results.
struct ConvolutionCase {
  struct Sizes {
    std::int64_t batch, time, channels, taps, ahead = 0;
    bool silu = true, documents = false, has_before = false;
  };
  ConvolutionCase(const Sizes& wanted, DType dtype, const Stream& stream)
      : sizes(wanted),
        x(random_tensor({wanted.batch, wanted.time, wanted.channels + 3}, dtype, 1, stream)),
        weight(random_tensor({wanted.channels, wanted.taps}, DType::kF32, 2, stream)),
        bias(random_tensor({wanted.channels}, DType::kF32, 3, stream)),
        dy(random_tensor({wanted.batch, wanted.time, wanted.channels}, dtype, 4, stream)),
        y(Tensor::empty_like(dy, MemoryKind::kActivations, stream)) {
    const Shape of_before{wanted.batch, wanted.taps - 1 - wanted.ahead, wanted.channels};
    if (wanted.has_before) before = random_tensor(of_before, dtype, 5, stream);
    if (!wanted.documents) return;
    Values places;
    for (std::int64_t row = 0; row < wanted.batch * wanted.time; ++row) {
      const std::int64_t t = row % wanted.time, length = 2 + row / wanted.time;
      places.push_back(static_cast<double>((t + 1) % length));  // the first began earlier
    }
    positions = tensor_of(places, {wanted.batch, wanted.time}, DType::kI32, stream);
  }
  ConvolutionSpec spec() const { return {sizes.silu, sizes.ahead}; }
  void forward(const Stream& stream) const {
    causal_convolution_forward(y, x, 2, weight, bias, before, positions, spec(), stream);
  }
  /// Index of the first token of token t's document, which may be negative.
  std::int64_t document(std::int64_t sequence, std::int64_t t) const {
    if (!positions) return -sizes.taps;
    const std::int32_t* const places = positions.data<std::int32_t>() + sequence * sizes.time;
    while (t > 0 && places[t] != 0) --t;
    return t - places[t];
  }
  /// Calls use(index) for the value that a tap reads: an index in x, or ~index in `before`.
  template <class Use>
  void read(std::int64_t sequence, std::int64_t t, std::int64_t tap, std::int64_t c,
            const Use& use) const {
    const std::int64_t from = t - (sizes.taps - 1 - sizes.ahead) + tap;
    if (from >= sizes.time || document(sequence, std::max(t, from)) > std::min(t, from)) return;
    if (from >= 0) return use((sequence * sizes.time + from) * (sizes.channels + 3) + 2 + c);
    const std::int64_t rows = sizes.taps - 1 - sizes.ahead;
    use(~((sequence * rows + rows + from) * sizes.channels + c));
  }
  Values sums() const {
    const Values v = values_of(x), w = values_of(weight), shift = values_of(bias);
    const Values early = before ? values_of(before) : Values(1000, 0.0);
    Values result;
    for (std::int64_t row = 0; row < sizes.batch * sizes.time; ++row) {
      for (std::int64_t c = 0; c < sizes.channels; ++c) {
        double sum = shift[static_cast<std::size_t>(c)];
        for (std::int64_t tap = 0; tap < sizes.taps; ++tap) {
          read(row / sizes.time, row % sizes.time, tap, c, [&](std::int64_t at) {
            const double value = at >= 0 ? v[static_cast<std::size_t>(at)]
                                         : (before ? early[static_cast<std::size_t>(~at)] : 0.0);
            sum += w[static_cast<std::size_t>(c * sizes.taps + tap)] * value;
          });
        }
        result.push_back(sum);
      }
    }
    return result;
  }
  Values wanted() const {
    Values result = sums();
    for (double& value : result) value /= sizes.silu ? 1 + std::exp(-value) : 1;
    return result;
  }
  Sizes sizes;
  Tensor x, weight, bias, dy, y, before, positions;
};

const ConvolutionCase::Sizes kConvolutions[] = {
    {.batch = 1, .time = 1, .channels = 1, .taps = 1},
    {.batch = 2, .time = 7, .channels = 5, .taps = 4},
    {.batch = 2, .time = 7, .channels = 5, .taps = 4, .documents = true, .has_before = true},
    {.batch = 1, .time = 2, .channels = 130, .taps = 4, .has_before = true},
    {.batch = 3,
     .time = 9,
     .channels = 33,
     .taps = 5,
     .ahead = 2,
     .silu = false,
     .documents = true},
    {.batch = 2, .time = 40, .channels = 17, .taps = 16, .has_before = true},
    {.batch = 2, .time = 12, .channels = 3, .taps = 7, .ahead = 3, .has_before = true},
    {.batch = 1, .time = 5, .channels = 300, .taps = 3, .silu = false},
};

TEST(CausalConvolution, ForwardMatchesReference) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const auto& sizes : kConvolutions) {
      const ConvolutionCase c(sizes, dtype, stream);
      c.forward(stream);
      expect_close(c.y, c.wanted(), dtype == DType::kF32 ? 2e-6 : 1e-2,
                   concat(sizes.time, " tokens, ", sizes.taps, " taps"));
    }
  }
}

/// Gradients of Σ dy·y in double, from the chain rule over what each tap reads.
struct ConvolutionGradients {
  explicit ConvolutionGradients(const ConvolutionCase& c)
      : x(values_of(c.x).size(), 0.0),
        before(static_cast<std::size_t>(c.sizes.batch * (c.sizes.taps - 1 - c.sizes.ahead) *
                                        c.sizes.channels),
               0.0),
        weight(values_of(c.weight).size(), 0.0),
        bias(values_of(c.bias).size(), 0.0) {
    const Values sums = c.sums(), dy = values_of(c.dy), v = values_of(c.x), w = values_of(c.weight),
                 early = c.before ? values_of(c.before) : before;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const double gate = 1 / (1 + std::exp(-sums[i]));
      const double dsum = dy[i] * (c.sizes.silu ? gate * (1 + sums[i] * (1 - gate)) : 1);
      const auto channel = static_cast<std::int64_t>(i) % c.sizes.channels,
                 row = static_cast<std::int64_t>(i) / c.sizes.channels;
      bias[static_cast<std::size_t>(channel)] += dsum;
      for (std::int64_t tap = 0; tap < c.sizes.taps; ++tap) {
        c.read(row / c.sizes.time, row % c.sizes.time, tap, channel, [&](std::int64_t at) {
          const auto of_weight = static_cast<std::size_t>(channel * c.sizes.taps + tap);
          const auto place = static_cast<std::size_t>(at >= 0 ? at : ~at);
          (at >= 0 ? x : before)[place] += w[of_weight] * dsum;
          weight[of_weight] += (at >= 0 ? v : early)[place] * dsum;
        });
      }
    }
  }
  Values x, before, weight, bias;
};

void expect_gradients(const ConvolutionCase& c, DType dtype, GradientMode mode,
                      const Stream& stream) {
  const Tensor dx = random_tensor(c.x.shape(), dtype, 6, stream), old = clone(dx, stream);
  const Tensor dweight = random_tensor(c.weight.shape(), DType::kF32, 7, stream),
               dbias = random_tensor(c.bias.shape(), DType::kF32, 8, stream);
  Tensor dbefore;
  if (c.before) dbefore = clone(c.before, stream);
  ConvolutionGradients wanted(c);
  if (mode == GradientMode::kAccumulate) {
    for (std::size_t i = 0; i < wanted.weight.size(); ++i)
      wanted.weight[i] += values_of(dweight)[i];
    for (std::size_t i = 0; i < wanted.bias.size(); ++i) wanted.bias[i] += values_of(dbias)[i];
  }
  const Values others = values_of(old);
  const auto width = static_cast<std::size_t>(c.sizes.channels + 3);
  for (std::size_t i = 0; i < others.size(); ++i)
    if (i % width < 2 || i % width == width - 1) wanted.x[i] = others[i];
  causal_convolution_backward(dx, dweight, dbias, mode, dbefore, c.dy, c.x, 2, c.weight, c.bias,
                              c.before, c.positions, c.spec(), stream);
  const double tolerance = dtype == DType::kF32 ? 3e-6 : 1e-2;
  expect_close(dx, wanted.x, tolerance, "dx");
  expect_close(dweight, wanted.weight, 3e-6, "dweight");
  expect_close(dbias, wanted.bias, 3e-6, "dbias");
  if (dbefore) expect_close(dbefore, wanted.before, tolerance, "dbefore");
}

TEST(CausalConvolution, BackwardMatchesReferenceAndKeepsOtherColumns) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const auto& sizes : kConvolutions) {
      SCOPED_TRACE(concat(sizes.time, " tokens, ", sizes.taps, " taps"));
      const ConvolutionCase c(sizes, dtype, stream);
      for (const GradientMode mode : {kNew, GradientMode::kAccumulate})
        expect_gradients(c, dtype, mode, stream);
    }
  }
}

/// Checks the reference's own derivative.
TEST(CausalConvolution, BackwardMatchesFiniteDifferences) {
  const Stream stream = cpu_stream();
  const ConvolutionCase c({.batch = 1, .time = 6, .channels = 2, .taps = 3, .documents = true},
                          DType::kF32, stream);
  const Values wanted = finite_differences(c.x, values_of(c.dy), 1e-3, [&] { return c.wanted(); });
  const Tensor dx = Tensor::zeros(c.x.shape(), DType::kF32, MemoryKind::kActivations, stream);
  causal_convolution_backward(dx, Tensor(), Tensor(), kNew, Tensor(), c.dy, c.x, 2, c.weight,
                              c.bias, c.before, c.positions, c.spec(), stream);
  expect_close(dx, wanted, 1e-6);
}

TEST(CausalConvolution, StepsMatchForwardForAnyBatch) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const ConvolutionCase c({.batch = 2, .time = 6, .channels = 37, .taps = 4, .has_before = true},
                            dtype, stream);
    c.forward(stream);
    const Values wanted = values_of(c.y);
    const Tensor state = clone(c.before, stream), alone = clone(c.before, stream);
    const Tensor texts = tensor_of({1, 0}, {2}, DType::kI32, stream);
    const Tensor first_text = tensor_of({0}, {1}, DType::kI32, stream);
    for (std::int64_t t = 0; t < 6; ++t) {
      Values row, expected;
      for (std::int64_t b : {1, 0}) {
        const Values all = values_of(c.x);
        row.insert(row.end(), all.begin() + (b * 6 + t) * 40, all.begin() + (b * 6 + t + 1) * 40);
        expected.insert(expected.end(), wanted.begin() + (b * 6 + t) * 37,
                        wanted.begin() + (b * 6 + t + 1) * 37);
      }
      const Tensor x = tensor_of(row, {2, 40}, dtype, stream);
      const Tensor y = Tensor::empty({2, 37}, dtype, MemoryKind::kActivations, stream),
                   one = Tensor::empty({1, 37}, dtype, MemoryKind::kActivations, stream);
      causal_convolution_step(y, state, x, 2, c.weight, c.bias, texts, c.spec(), stream);
      expect_close(y, expected, 0);
      causal_convolution_step(
          one, alone, tensor_of(Values(row.begin() + 40, row.end()), {1, 40}, dtype, stream), 2,
          c.weight, c.bias, first_text, c.spec(), stream);
      expect_close(one, Values(expected.begin() + 37, expected.end()), 0);
    }
  }
}

TEST(CausalConvolution, ThreadCountDoesNotChangeBits) {
  const Stream stream = cpu_stream();
  const ConvolutionCase c({.batch = 3, .time = 50, .channels = 300, .taps = 4, .has_before = true},
                          DType::kF32, stream);
  std::vector<Tensor> results;
  const int all = threads();
  for (const int count : {1, all}) {
    set_threads(count);
    const Tensor dx = Tensor::zeros(c.x.shape(), DType::kF32, MemoryKind::kActivations, stream);
    const Tensor dweight = clone(c.weight, stream), y = clone(c.y, stream);
    causal_convolution_forward(y, c.x, 2, c.weight, c.bias, c.before, c.positions, c.spec(),
                               stream);
    causal_convolution_backward(dx, dweight, Tensor(), kNew, Tensor(), c.dy, c.x, 2, c.weight,
                                c.bias, c.before, c.positions, c.spec(), stream);
    results.insert(results.end(), {y, dx, dweight});
  }
  for (std::size_t i = 0; i < 3; ++i) expect_same_bits(results[i], results[i + 3]);
}

TEST(CausalConvolution, ThrowsOnMismatch) {
  const Stream stream = cpu_stream();
  const ConvolutionCase c({.batch = 1, .time = 4, .channels = 3, .taps = 2, .has_before = true},
                          DType::kF32, stream);
  const auto forward = [&](const Tensor& weight, std::int64_t first, const Tensor& before,
                           std::int64_t ahead) {
    causal_convolution_forward(c.y, c.x, first, weight, c.bias, before, Tensor(), {true, ahead},
                               stream);
  };
  EXPECT_NO_THROW(forward(c.weight, 3, c.before, 0));
  EXPECT_THROW(forward(c.weight, 4, c.before, 0), ShapeMismatch);
  EXPECT_THROW(forward(c.weight, -1, c.before, 0), ShapeMismatch);
  EXPECT_THROW(forward(c.weight, 0, c.y, 0), ShapeMismatch);
  EXPECT_THROW(forward(c.weight, 0, Tensor(), 2), ShapeMismatch);
  EXPECT_THROW(forward(random_tensor({3, 17}, DType::kF32, 1, stream), 0, Tensor(), 0),
               ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
