#include "hybrid_trainer/nn/residual_block.h"
#include "hybrid_trainer/nn/expert_mixture.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/nn/mixers.h"
#include "tests/support/gradient_check.h"
#include "tests/support/layers.h"

namespace hybrid_trainer::testing {
namespace {

class ResidualBlockTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kTime = 7, kWidth = 16;

  Tensor forward(ResidualBlock& block, const Pass& pass) {
    ForwardOnlyTape tape(pass);
    return block.forward(x_, tape, stream_);
  }
  ResidualBlock make_block(float dropout) {
    ResidualBlock block("h.0", {.width = kWidth, .dropout = dropout},
                        plain_layer(kWidth, 2, 4 * kWidth), 1, stream_);
    randomize([&](const ParameterVisitor& visit) { block.visit_parameters(visit); }, stream_);
    return block;
  }
  const Stream stream_ = test_stream();
  const Tensor x_ = normal_tensor({1, kTime, kWidth}, 1, stream_);
};

TEST_F(ResidualBlockTest, UsesGpt2ParameterNames) {
  ResidualBlock block("h.3", {.width = kWidth}, plain_layer(kWidth, 2, 4 * kWidth), 1, stream_);
  std::vector<std::string> names;
  block.visit_parameters([&](Parameter& parameter) { names.push_back(parameter.name()); });
  EXPECT_EQ(names, (std::vector<std::string>{
                       "h.3.ln_1.weight", "h.3.ln_1.bias", "h.3.attn.c_attn.weight",
                       "h.3.attn.c_attn.bias", "h.3.attn.c_proj.weight", "h.3.attn.c_proj.bias",
                       "h.3.ln_2.weight", "h.3.ln_2.bias", "h.3.mlp.c_fc.weight",
                       "h.3.mlp.c_fc.bias", "h.3.mlp.c_proj.weight", "h.3.mlp.c_proj.bias"}));
}

TEST_F(ResidualBlockTest, DropoutDependsOnTrainingSeedAndStep) {
  ResidualBlock plain = make_block(0), dropping = make_block(0.2f);
  const Tensor wanted = forward(plain, {.training = false});
  EXPECT_TRUE(same_bits(forward(dropping, {.training = false}), wanted));
  const Tensor first = forward(dropping, {.seed = 1, .step = 1});
  EXPECT_FALSE(same_bits(first, wanted));
  EXPECT_TRUE(same_bits(first, forward(dropping, {.seed = 1, .step = 1})));
  EXPECT_FALSE(same_bits(first, forward(dropping, {.seed = 1, .step = 2})));
  EXPECT_FALSE(same_bits(first, forward(dropping, {.seed = 2, .step = 1})));
}

TEST_F(ResidualBlockTest, DecodingMatchesFullForward) {
  ResidualBlock block = make_block(0);
  const std::vector<double> wanted = values_of(forward(block, {.training = false}));
  const ResidualBlock::State state =
      block.make_state({.texts = 1, .tokens = kTime}, DType::kF32, stream_);
  std::vector<double> got;
  for (std::int64_t t = 0; t < kTime; ++t) {
    const Tensor x = x_.view({kTime, kWidth}).rows(t, t + 1).view({1, 1, kWidth});
    Pass pass{.training = false};
    pass.positions = Tensor::zeros({1, 1}, DType::kI32, MemoryKind::kData, stream_);
    pass.positions.data<std::int32_t>()[0] = static_cast<std::int32_t>(t);
    const Tensor text = Tensor::zeros({1}, DType::kI32, MemoryKind::kData, stream_);
    const auto y = values_of(block.decode(x, {.each = text}, state, pass, stream_));
    got.insert(got.end(), y.begin(), y.end());
  }
  EXPECT_LT(relative_error(got, wanted), 1e-6);
}

/// The output is normalized, because each branch's sum is followed by a norm.
TEST_F(ResidualBlockTest, PostNormNormalizesOutput) {
  ResidualBlock block("h.0", {.width = kWidth, .post_norm = true},
                      plain_layer(kWidth, 2, 4 * kWidth), 1, stream_);
  const std::vector<double> y = values_of(forward(block, {.training = false}));
  for (std::size_t row = 0; row < kTime; ++row) {
    double mean = 0, square = 0;
    for (std::size_t i = 0; i < kWidth; ++i) {
      mean += y[row * kWidth + i] / kWidth;
      square += y[row * kWidth + i] * y[row * kWidth + i] / kWidth;
    }
    EXPECT_NEAR(mean, 0, 1e-6);
    EXPECT_NEAR(square, 1, 1e-3);
  }
  LayerSpec with_last = plain_layer(kWidth, 2, 4 * kWidth);
  with_last[0].last_norm = "ln_3";
  EXPECT_THROW(ResidualBlock("h.0", {.width = kWidth, .post_norm = true}, with_last, 1, stream_),
               Error);
}

TEST_F(ResidualBlockTest, KeepsDeclaredActivations) {
  expect_kept({.width = kWidth}, plain_layer(kWidth, 2, 40), stream_);
  LayerSpec gated = layer_of<GatedFeedForward>({.width = kWidth, .heads = {4, 2}, .head_size = 6},
                                               {.width = kWidth, .intermediate_size = 24});
  const NormSpec norm{NormKind::kRootMeanSquare};
  expect_kept({kWidth, norm}, gated, stream_);
  gated[1].last_norm = "ln_4";
  expect_kept({kWidth, norm}, gated, stream_);
}

TEST_F(ResidualBlockTest, MixturesKeepDeclaredActivations) {
  ExpertMixture::Spec spec{.experts = {.width = kWidth,
                                       .intermediate_size = 10,
                                       .routing = {.experts = 4, .chosen = 2}}};
  const auto expect = [&] {
    expect_kept({.width = kWidth},
                {{.name = "mlp", .norm = "ln_2", .make = branch_of<ExpertMixture>(spec)}}, stream_);
  };
  expect();
  spec.shared_width = 6;
  expect();
  spec.shared_gate = true;
  expect();
}

/// Memory plans of models with these mixers depend on it.
TEST_F(ResidualBlockTest, MixersKeepDeclaredActivations) {
  const auto expect = [&](const char* name, const BranchMaker& make) {
    SCOPED_TRACE(name);
    expect_kept({.width = kWidth}, {{.name = "mix", .norm = "ln_1", .make = make}}, stream_);
  };
  expect("attention after a convolution",
         branch_of<Attention>({.width = kWidth, .heads = {4, 2}, .head_size = 6, .taps = 3}));
  for (const std::int64_t positions : {0, 12}) {
    for (const bool bidirectional : {false, true})
      expect("T + U·Vᵀ", branch_of<SemiseparableMixer>({.width = kWidth,
                                                        .heads = 2,
                                                        .head_size = 6,
                                                        .rank = 3,
                                                        .bidirectional = bidirectional,
                                                        .positions = positions}));
  }
  expect("BK core", branch_of<ResolventMixer>({.width = kWidth, .potentials = 3}));
  expect("Hydra", branch_of<HydraMixer>(
                      {.width = kWidth, .scan = {.heads = 2, .head_size = 8, .state_size = 4}}));
}

/// A third branch after the usual two; compares with a block of only that branch.
TEST_F(ResidualBlockTest, AppliesAnyListOfBranches) {
  LayerSpec layer = plain_layer(kWidth, 2, 4 * kWidth);
  layer.push_back(
      {.name = "gated",
       .norm = "ln_3",
       .make = branch_of<GatedFeedForward>({.width = kWidth, .intermediate_size = 24})});
  const ResidualSpec residual{.width = kWidth};
  ResidualBlock all("h.0", residual, layer, 1, stream_),
      two = make_block(0), last("h.0", residual, {layer.back()}, 3, stream_);
  for (ResidualBlock* block : {&all, &two, &last}) {
    block->initialize({}, 7, stream_);
    block->visit_parameters([&](Parameter& parameter) {
      if (parameter.role() == Role::kVector) initialize_uniform(parameter, 1, 7, stream_);
    });
  }
  ForwardOnlyTape tape{Pass{}};
  EXPECT_TRUE(same_bits(forward(all, {}), last.forward(forward(two, {}), tape, stream_)));
  EXPECT_EQ(all.flops(4).forward, two.flops(4).forward + last.flops(4).forward);
}

}  // namespace
}  // namespace hybrid_trainer::testing
