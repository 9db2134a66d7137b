#include "hybrid_trainer/nn/convolution.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/product_rounding.h"
#include "tests/nn/spatial_modules.h"
#include "tests/support/layers.h"

namespace hybrid_trainer::testing {
namespace {

constexpr kernels::Window kVideoWindow{{3, 3, 3}, {1, 2, 2}, {1, 1, 1}};

Convolution::Spec video_spec() {
  return {.rank = 3, .inputs = 4, .outputs = 6, .window = kVideoWindow};
}

TEST(ConvolutionModule, UsesPyTorchFileLayout) {
  const Stream stream = test_stream();
  Convolution convolution(ModuleName("stem", "model.conv1"),
                          {.rank = 2,
                           .inputs = 6,
                           .outputs = 4,
                           .window = {{3, 5, 1}, {1, 1, 1}, {1, 2, 0}},
                           .groups = 2},
                          stream);
  const FileTensor in_file = convolution.weight().in_files().at(0);
  EXPECT_EQ(convolution.weight().shape(), (Shape{4, 45}));
  EXPECT_EQ(in_file.name, "model.conv1.weight");
  EXPECT_EQ(in_file.shape, (Shape{4, 3, 3, 5}));
  EXPECT_TRUE(in_file.channels_first);
  EXPECT_EQ(convolution.bias()->in_files().at(0).name, "model.conv1.bias");
}

TEST(ConvolutionModule, CountsFlopsAndKeptActivations) {
  const Stream stream = test_stream();
  Convolution convolution("conv", video_spec(), stream);
  const Tensor x = normal_tensor({2, 3, 5, 6, 4}, 1, stream);
  CountingTape tape{Pass{}};
  const Tensor y = convolution.forward(x, tape, stream);
  EXPECT_EQ(y.shape(), (Shape{2, 3, 3, 3, 6}));
  EXPECT_EQ(y.shape(), convolution.output_shape(x.shape()));
  EXPECT_EQ(tape.numbers, x.elements());
  EXPECT_EQ(convolution.flops(x.shape()).forward, 2.0 * 2 * 27 * 6 * 27 * 4);
  EXPECT_EQ(convolution.flops(x.shape()).backward, 2 * convolution.flops(x.shape()).forward);
}

TEST(ConvolutionModule, FrozenKeepsNothingButGivesInputGradient) {
  const Stream stream = test_stream();
  const Tensor x = normal_tensor({2, 3, 5, 6, 4}, 1, stream),
               dy = normal_tensor({2, 3, 3, 3, 6}, 2, stream);
  const auto gradient = [&](bool frozen) {
    Convolution convolution("conv", video_spec(), stream);
    const auto visit = [&](const ParameterVisitor& each) { convolution.visit_parameters(each); };
    randomize(visit, stream);
    if (frozen) visit([](Parameter& parameter) { parameter.freeze(); });
    const StepGradients step(visit, stream);
    CountingTape tape{Pass{}};
    convolution.forward(x, tape, stream);
    EXPECT_EQ(tape.numbers, frozen ? 0 : x.elements());
    const Tensor dx = convolution.backward(dy, tape, stream);
    EXPECT_TRUE(tape.empty());
    return dx;
  };
  EXPECT_TRUE(same_bits(gradient(true), gradient(false)));
}

TEST(ConvolutionModule, RoundsOperandsToFp16) {
  const Stream stream = test_stream(), host = test_stream();
  Convolution convolution("conv", video_spec(), stream);
  const auto visit = [&](const ParameterVisitor& each) { convolution.visit_parameters(each); };
  randomize(visit, stream);
  std::vector<Parameter*> parameters;
  visit([&](Parameter& parameter) { parameters.push_back(&parameter); });
  ProductRounding rounding(parameters, stream, host);
  rounding.set_form(ProductForm::kFp16);
  const Tensor x = normal_tensor({1, 2, 3, 4, 4}, 1, stream);
  ForwardOnlyTape plain{Pass{}}, rounded{Pass{.products = &rounding}};
  const Tensor exact = convolution.forward(x, plain, stream),
               half = convolution.forward(x, rounded, stream);
  EXPECT_FALSE(same_bits(exact, half));
  EXPECT_LT(relative_error(values_of(half), values_of(exact)), 1e-3);
}

TEST(ConvolutionModule, ComputesInBf16FromWeightCopy) {
  const Stream stream = test_stream();
  Convolution convolution("conv", video_spec(), stream);
  const auto visit = [&](const ParameterVisitor& each) { convolution.visit_parameters(each); };
  randomize(visit, stream);
  const Tensor x = normal_tensor({1, 2, 3, 4, 4}, 1, stream);
  const Tensor short_x = Tensor::empty(x.shape(), DType::kBF16, MemoryKind::kActivations, stream);
  for (std::int64_t i = 0; i < x.elements(); ++i)
    short_x.data<BFloat16>()[i] = to_bfloat16(x.data<float>()[i]);
  ForwardOnlyTape tape{Pass{.dtype = DType::kBF16}};
  EXPECT_THROW(convolution.forward(short_x, tape, stream), Error);
  visit([&](Parameter& parameter) { parameter.compute_in(DType::kBF16, stream); });
  const Tensor y = convolution.forward(short_x, tape, stream);
  EXPECT_EQ(y.dtype(), DType::kBF16);
  EXPECT_LT(relative_error(values_of(y), values_of(convolution.forward(x, tape, stream))), 1e-2);
}

TEST(ConvolutionModule, RejectsInvalidSpecsAndInputs) {
  const Stream stream = test_stream();
  const auto made = [&](const Convolution::Spec& spec) { Convolution("conv", spec, stream); };
  EXPECT_THROW(made({.inputs = 3, .outputs = 4, .groups = 2}), ShapeMismatch);
  EXPECT_THROW(made({.inputs = 4, .outputs = 3, .groups = 2}), ShapeMismatch);
  EXPECT_THROW(made({.rank = 4, .inputs = 4, .outputs = 3}), ShapeMismatch);
  EXPECT_THROW(made({.inputs = 4, .outputs = 3, .window = {.kernel = {0, 3, 1}}}), ShapeMismatch);
  Convolution convolution("stem.conv", video_spec(), stream);
  ForwardOnlyTape tape{Pass{}};
  try {
    convolution.forward(normal_tensor({2, 3, 4, 4}, 1, stream), tape, stream);
    FAIL() << "no error";
  } catch (const ShapeMismatch& error) {
    EXPECT_STREQ(error.what(),
                 "stem.conv.weight: its input is (2, 3, 4, 4), want (batch, 3 spatial dimensions, "
                 "4 channels)");
  }
}

TEST(PatchEmbeddingModule, MatchesLinearMapOfPatches) {
  const Stream stream = test_stream();
  PatchEmbedding embedding("patches", {.rank = 3, .channels = 3, .width = 5, .patch = {2, 2, 2}},
                           stream);
  randomize([&](const ParameterVisitor& visit) { embedding.visit_parameters(visit); }, stream);
  const Tensor x = normal_tensor({2, 2, 4, 6, 3}, 1, stream);
  ForwardOnlyTape tape{Pass{}};
  const Tensor y = embedding.forward(x, tape, stream);
  EXPECT_EQ(y.shape(), (Shape{2, 6, 5}));
  EXPECT_EQ(embedding.tokens(x.shape()), 6);
  const float* const weight = master_of(embedding.projection().weight()).data<float>();
  const float* const bias = master_of(*embedding.projection().bias()).data<float>();
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    const std::int64_t o = i % 5, token = i / 5 % 6, b = i / 30;
    double sum = static_cast<double>(bias[o]);
    for (std::int64_t k = 0; k < 24; ++k) {
      const std::int64_t t = k / 12, row = token / 3 * 2 + k / 6 % 2,
                         column = token % 3 * 2 + k / 3 % 2;
      sum += static_cast<double>(
          weight[o * 24 + k] * x.data<float>()[(((b * 2 + t) * 4 + row) * 6 + column) * 3 + k % 3]);
    }
    EXPECT_NEAR(y.data<float>()[i], sum, 1e-5);
  }
  EXPECT_THROW(embedding.forward(normal_tensor({2, 2, 4, 5, 3}, 1, stream), tape, stream),
               ShapeMismatch);
}

/// The parameters' gradients have the same bits, and no memory is allocated for the gradient of x.
TEST(ConvolutionModule, BackwardParametersSkipsInputGradient) {
  const Stream stream = test_stream();
  const Tensor x = normal_tensor({2, 4, 4, 3}, 1, stream);
  const auto run = [&](Module& module, bool with_input) {
    const auto visit = [&](const ParameterVisitor& each) { module.visit_parameters(each); };
    randomize(visit, stream);
    const StepGradients step(visit, stream);
    PlainTape tape(Pass{});
    const Tensor dy = projection_gradient(module.forward(x, tape, stream).shape(), stream);
    stream.pool()->reset_peaks();
    const std::size_t before = stream.pool()->use().live_total;
    std::vector<std::vector<double>> gradients;
    if (with_input) {
      EXPECT_EQ(module.backward(dy, tape, stream).shape(), x.shape());
    } else {
      module.backward_parameters(dy, tape, stream);
      const std::size_t kind = static_cast<std::size_t>(MemoryKind::kActivations);
      EXPECT_EQ(stream.pool()->use().peak[kind], stream.pool()->use().live[kind]);
      EXPECT_LE(stream.pool()->use().live_total, before);
    }
    EXPECT_TRUE(tape.empty());
    visit([&](Parameter& parameter) { gradients.push_back(values_of(parameter.gradient())); });
    return gradients;
  };
  Convolution convolution("conv", {.inputs = 3, .outputs = 5, .window = kVideoWindow}, stream);
  PatchEmbedding patches("patches", {.channels = 3, .width = 7, .patch = {2, 2}}, stream);
  Linear linear("linear", 3, 6, stream);
  for (Module* const module : std::initializer_list<Module*>{&convolution, &patches, &linear})
    EXPECT_EQ(run(*module, false), run(*module, true));
}

TEST(GroupNormModule, RejectsInvalidGroupsAndInputs) {
  const Stream stream = test_stream();
  EXPECT_THROW(GroupNorm("norm", {.channels = 6, .groups = 4}, stream), ShapeMismatch);
  GroupNorm norm("norm", {.channels = 6, .groups = 3}, stream);
  ForwardOnlyTape tape{Pass{}};
  EXPECT_THROW(norm.forward(normal_tensor({2, 3, 5}, 1, stream), tape, stream), ShapeMismatch);
}

/// Later activations are recomputed from its input.
TEST(GroupNormModule, RecomputationIsBitIdentical) {
  const Stream stream = test_stream();
  const auto run = [&](Rebuild rebuild) {
    GroupNorm norm("norm", {.channels = 6, .groups = 3}, stream);
    ActivationFunction silu(kernels::ActivationKind::kSilu);
    const auto visit = [&](const ParameterVisitor& each) { norm.visit_parameters(each); };
    randomize(visit, stream);
    const StepGradients step(visit, stream);
    PlainTape tape(Pass{}, rebuild);
    const Tensor x = normal_tensor({2, 4, 3, 6}, 1, stream);
    const Tensor y = silu.forward(norm.forward(x, tape, stream), tape, stream);
    return norm.backward(silu.backward(normal_tensor(y.shape(), 2, stream), tape, stream), tape,
                         stream);
  };
  EXPECT_TRUE(same_bits(run(Rebuild::kNothing), run(Rebuild::kNormalized)));
}

}  // namespace
}  // namespace hybrid_trainer::testing
