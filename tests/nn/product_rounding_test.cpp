#include "hybrid_trainer/nn/product_rounding.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/nn/expert_mixture.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "hybrid_trainer/nn/linear.h"
#include "kernels/products/product_rounding.h"
#include "tests/support/gradient_check.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kInputs = 24, kOutputs = 16, kRows = 10;

template <class Of>
std::vector<Parameter*> parameters_of(Of& module) {
  std::vector<Parameter*> all;
  module.visit_parameters([&](Parameter& parameter) { all.push_back(&parameter); });
  return all;
}

/// A linear map with rounded products.
struct Rounded {
  explicit Rounded(ProductForm form)
      : stream(test_stream()),
        linear("map", kInputs, kOutputs, stream),
        rounding(parameters_of(linear), stream, stream) {
    randomize([&](const ParameterVisitor& visit) { linear.visit_parameters(visit); }, stream);
    rounding.set_form(form);
  }
  Pass pass(bool training = true) const { return {.training = training, .products = &rounding}; }
  /// Records an update whose operands had these largest magnitudes.
  void update(float input, float weight, float gradient) {
    rounding.history().wait_for_update({input, weight, gradient}, stream);
  }

  Stream stream;
  Linear linear;
  ProductRounding rounding;
};

/// x rounded to a format, scaled by its largest magnitude.
Tensor in_format(const Tensor& x, kernels::Float8 format, const Stream& stream) {
  const Tensor zero = Tensor::zeros({1}, DType::kF32, MemoryKind::kWorkspace, stream),
               largest = Tensor::empty_like(zero, MemoryKind::kWorkspace, stream),
               y = Tensor::empty_like(x, MemoryKind::kWorkspace, stream);
  kernels::largest_magnitude(largest, Tensor{}, x, stream);
  kernels::round_to_float8(y, x, format, zero, largest, stream);
  return y;
}

Tensor in_half(const Tensor& x, const Stream& stream) {
  const Tensor y = Tensor::empty_like(x, MemoryKind::kWorkspace, stream);
  kernels::round_to_half(y, x, stream);
  return y;
}

/// y, dx and the gradients of weight and bias of a plain linear map.
struct Results {
  Tensor y, dx, dweight, dbias;
};

Results wanted(Linear& linear, const Tensor& x, const Tensor& w, const Tensor& dy,
               const Stream& stream) {
  Results results{Tensor::empty({kRows, kOutputs}, DType::kF32, MemoryKind::kActivations, stream),
                  Tensor::empty({kRows, kInputs}, DType::kF32, MemoryKind::kActivations, stream),
                  Tensor::empty({kOutputs, kInputs}, DType::kF32, MemoryKind::kGradients, stream),
                  {}};
  kernels::linear_forward(results.y, x, w, linear.bias()->acquire_master(stream), {}, stream);
  kernels::linear_backward_input(results.dx, dy, w, stream);
  kernels::linear_backward_weight(results.dweight, dy, x, kernels::GradientMode::kOverwrite,
                                  stream);
  return results;
}

Results results_of(Rounded& map, const Tensor& x, const Tensor& dy) {
  const StepGradients step(
      [&](const ParameterVisitor& visit) { map.linear.visit_parameters(visit); }, map.stream);
  PlainTape tape{map.pass()};
  Results results;
  results.y = map.linear.forward(x, tape, map.stream);
  results.dx = map.linear.backward(dy, tape, map.stream);
  results.dweight = clone(map.linear.weight().gradient(), map.stream);
  results.dbias = clone(map.linear.bias()->gradient(), map.stream);
  return results;
}

TEST(ProductRounding, RoundsOperandsToFloat8ButNotBias) {
  Rounded map(ProductForm::kFp8);
  const Tensor x = normal_tensor({kRows, kInputs}, 1, map.stream),
               dy = normal_tensor({kRows, kOutputs}, 2, map.stream);
  const Results got = results_of(map, x, dy);
  const Tensor w = in_format(master_of(map.linear.weight()), kernels::Float8::kE4M3, map.stream);
  const Results want = wanted(map.linear, in_format(x, kernels::Float8::kE4M3, map.stream), w,
                              in_format(dy, kernels::Float8::kE5M2, map.stream), map.stream);
  EXPECT_TRUE(same_bits(got.y, want.y));
  EXPECT_TRUE(same_bits(got.dx, want.dx));
  EXPECT_TRUE(same_bits(got.dweight, want.dweight));
  const Tensor sums = Tensor::empty_like(got.dbias, MemoryKind::kWorkspace, map.stream);
  kernels::bias_backward(sums, dy, kernels::GradientMode::kOverwrite, map.stream);
  EXPECT_TRUE(same_bits(got.dbias, sums));
  EXPECT_FALSE(same_bits(got.y, map.linear.product(x, Tensor{}, Pass{}, map.stream)));
}

TEST(ProductRounding, RoundsOperandsAndResultsToHalf) {
  Rounded map(ProductForm::kFp16);
  const Tensor x = normal_tensor({kRows, kInputs}, 1, map.stream),
               dy = normal_tensor({kRows, kOutputs}, 2, map.stream);
  const Results got = results_of(map, x, dy);
  const Results want = wanted(map.linear, in_half(x, map.stream),
                              in_half(master_of(map.linear.weight()), map.stream),
                              in_half(dy, map.stream), map.stream);
  EXPECT_TRUE(same_bits(got.y, in_half(want.y, map.stream)));
  EXPECT_TRUE(same_bits(got.dx, in_half(want.dx, map.stream)));
  EXPECT_TRUE(same_bits(got.dweight, want.dweight));
  EXPECT_FALSE(same_bits(got.y, want.y));
}

TEST(ProductRounding, OverflowInHalfBecomesInfinite) {
  Rounded map(ProductForm::kFp16);
  const Tensor x = normal_tensor({kRows, kInputs}, 1, map.stream);
  x.data<float>()[0] = 6e4f;
  const Tensor residual =
      Tensor::zeros({kRows, kOutputs}, DType::kF32, MemoryKind::kActivations, map.stream);
  residual.data<float>()[kOutputs] = 1e6f;  // of another row; added afterwards in f32
  fill_zero(map.linear.weight().acquire_master(map.stream, Use::kWrite), map.stream);
  map.linear.weight().acquire_master(map.stream, Use::kChange).tensor().data<float>()[0] = 4;
  const Tensor y = map.linear.product(x, residual, map.pass(), map.stream);
  EXPECT_TRUE(std::isinf(y.data<float>()[0]));
  EXPECT_TRUE(std::isfinite(y.data<float>()[1]));
  EXPECT_GT(y.data<float>()[kOutputs], 9e5f);
}

TEST(ProductRounding, ScalesByLargestOfRecentUpdates) {
  Rounded map(ProductForm::kFp8);
  const Tensor x = normal_tensor({kRows, kInputs}, 1, map.stream);
  const auto rounded = [&] {
    return map.rounding.rounded(x, Operand::kInput, map.linear.weight(), map.pass(), map.stream);
  };
  x.data<float>()[0] = 6;
  map.update(1.75f, 1, 1);
  EXPECT_EQ(rounded().data<float>()[0], 1.75f);  // saturates, because the history lags behind
  map.update(7, 1, 1);
  EXPECT_EQ(rounded().data<float>()[0], 6);
  for (std::size_t i = 0; i + 1 < MagnitudeHistory::kUpdates; ++i) map.update(1.75f, 1, 1);
  EXPECT_EQ(rounded().data<float>()[0], 6);
  map.update(1.75f, 1, 1);  // the 7 is no longer in the history
  EXPECT_EQ(rounded().data<float>()[0], 1.75f);
}

TEST(ProductRounding, TracksOnlyTrainingOperands) {
  Rounded map(ProductForm::kFp8);
  const Tensor x = normal_tensor({kRows, kInputs}, 1, map.stream);
  x.data<float>()[3] = -9;
  map.linear.product(x, Tensor{}, map.pass(false), map.stream);
  EXPECT_EQ(map.rounding.history().wait_for_current(map.stream), (std::vector<float>{0, 0, 0}));
  map.linear.product(x, Tensor{}, map.pass(), map.stream);
  const std::vector<float> seen = map.rounding.history().wait_for_current(map.stream);
  EXPECT_EQ(seen[0], 9);
  EXPECT_GT(seen[1], 0);
  EXPECT_EQ(seen[2], 0);
  map.rounding.history().clear(map.stream);
  EXPECT_EQ(map.rounding.history().wait_for_current(map.stream), (std::vector<float>{0, 0, 0}));
}

TEST(ProductRounding, RestoresHistoryFromState) {
  Rounded map(ProductForm::kFp8), other(ProductForm::kFp8);
  for (int i = 0; i < 20; ++i) map.update(1.0f / static_cast<float>(3 + i), 0.1f, 5);
  State state;
  map.rounding.history().save(state);
  other.rounding.history().load(state, other.stream);
  for (Rounded* const each : {&map, &other}) each->update(0, 0, 0);
  for (std::size_t i = 0; i < kOperands; ++i) {
    EXPECT_TRUE(same_bits(map.rounding.history().expected(i), other.rounding.history().expected(i)))
        << i;
  }
  EXPECT_EQ(map.rounding.history().expected(0).data<float>()[0], 1.0f / 8);
  state.series.begin()->second.pop_back();
  EXPECT_THROW(other.rounding.history().load(state, other.stream), DataError);
  other.rounding.history().load(State{}, other.stream);
  EXPECT_EQ(other.rounding.history().expected(0).data<float>()[0], 0);
}

TEST(ProductRounding, FusedActivationTracksMagnitudes) {
  const Stream stream = test_stream();
  FeedForward branch("mlp", {.width = 16, .intermediate_size = 24}, stream);
  const auto visit_all = [&](const ParameterVisitor& visit) { branch.visit_parameters(visit); };
  randomize(visit_all, stream);
  ProductRounding rounding(parameters_of(branch), stream, stream);
  rounding.set_form(ProductForm::kFp8);
  const StepGradients step(visit_all, stream);
  PlainTape tape{Pass{.products = &rounding}};
  branch.forward(normal_tensor({2, 5, 16}, 5, stream), Tensor{}, tape, stream);
  branch.backward(normal_tensor({2, 5, 16}, 6, stream), tape, stream);
  for (const float largest : rounding.history().wait_for_current(stream)) EXPECT_GT(largest, 0);
}

/// A single group gives the bits of a single map.
TEST(ProductRounding, GroupedLinearRoundsLikeLinear) {
  for (const ProductForm form : {ProductForm::kFp8, ProductForm::kFp16}) {
    Rounded map(form);
    const Tensor x = normal_tensor({kRows, kInputs}, 1, map.stream),
                 dy = normal_tensor({kRows, kOutputs}, 2, map.stream),
                 offsets = Tensor::zeros({2}, DType::kI32, MemoryKind::kData, map.stream);
    offsets.data<std::int32_t>()[1] = kRows;
    const Results want = results_of(map, x, dy);
    std::vector<Linear> linears;
    linears.push_back(std::move(map.linear));
    GroupedLinear group(std::move(linears));
    const RowsByGroup groups{offsets};
    Linear& linear = group.linears().front();
    ProductRounding rounding(parameters_of(linear), map.stream, map.stream);
    rounding.set_form(form);
    const Pass pass{.products = &rounding};
    const StepGradients step([&](const ParameterVisitor& visit) { linear.visit_parameters(visit); },
                             map.stream);
    EXPECT_TRUE(same_bits(
        group.forward(x, groups, GroupedLinear::GroupSelection::kAll, pass, map.stream), want.y));
    EXPECT_TRUE(same_bits(group.backward_input(dy, groups, pass, map.stream), want.dx));
    group.contribute(dy, x, Tensor{}, groups, pass, map.stream);
    EXPECT_TRUE(same_bits(linear.weight().gradient(), want.dweight));
    EXPECT_TRUE(same_bits(linear.bias()->gradient(), want.dbias));
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
