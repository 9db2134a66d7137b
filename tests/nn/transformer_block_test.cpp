#include "hybrid_trainer/nn/transformer_block.h"

#include <gtest/gtest.h>

#include "support/gradient_check.h"

namespace hybrid_trainer::testing {
namespace {

class TransformerBlockTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kTime = 7, kWidth = 16;

  Tensor forward(TransformerBlock& block, const Pass& pass) {
    ForwardOnlyTape tape(pass);
    return block.forward(x_, tape, stream_);
  }
  TransformerBlock make_block(float dropout, BlockOrder order = BlockOrder::kSequential) {
    TransformerBlock block(0, {kWidth, 2, kWidth / 2, 4 * kWidth, true, dropout, order}, stream_);
    randomize([&](const ParameterVisitor& visit) { block.visit_parameters(visit); }, stream_);
    return block;
  }
  const Stream stream_ = test_stream();
  const Tensor x_ = normal_tensor({1, kTime, kWidth}, 1, stream_);
};

TEST_F(TransformerBlockTest, BearsTheNamesOfGpt2) {
  TransformerBlock block(3, {kWidth, 2, kWidth / 2, 4 * kWidth}, stream_);
  std::vector<std::string> names;
  block.visit_parameters([&](Parameter& parameter) { names.push_back(parameter.name()); });
  EXPECT_EQ(names, (std::vector<std::string>{
                       "h.3.ln_1.weight", "h.3.ln_1.bias", "h.3.attn.c_attn.weight",
                       "h.3.attn.c_attn.bias", "h.3.attn.c_proj.weight", "h.3.attn.c_proj.bias",
                       "h.3.ln_2.weight", "h.3.ln_2.bias", "h.3.mlp.c_fc.weight",
                       "h.3.mlp.c_fc.bias", "h.3.mlp.c_proj.weight", "h.3.mlp.c_proj.bias"}));
}

TEST_F(TransformerBlockTest, DropoutActsInTrainingAloneAndFollowsTheStep) {
  TransformerBlock plain = make_block(0), dropping = make_block(0.2f);
  const Tensor wanted = forward(plain, {.training = false});
  EXPECT_TRUE(same_bits(forward(dropping, {.training = false}), wanted));
  const Tensor first = forward(dropping, {.seed = 1, .step = 1});
  EXPECT_FALSE(same_bits(first, wanted));
  EXPECT_TRUE(same_bits(first, forward(dropping, {.seed = 1, .step = 1})));
  EXPECT_FALSE(same_bits(first, forward(dropping, {.seed = 1, .step = 2})));
  EXPECT_FALSE(same_bits(first, forward(dropping, {.seed = 2, .step = 1})));
}

TEST_F(TransformerBlockTest, DecodingEqualsTheFullForward) {
  for (const BlockOrder order : {BlockOrder::kSequential, BlockOrder::kParallel}) {
    TransformerBlock block = make_block(0, order);
    const std::vector<double> wanted = values_of(forward(block, {.training = false}));
    const TransformerBlock::State state =
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
}

TEST_F(TransformerBlockTest, ParallelBranchesBothReadTheBlocksInput) {
  TransformerBlock sequential = make_block(0), parallel = make_block(0, BlockOrder::kParallel);
  EXPECT_FALSE(same_bits(forward(sequential, {}), forward(parallel, {})));
  // With an attention that adds nothing, both orders are the same.
  for (TransformerBlock* block : {&sequential, &parallel}) {
    block->visit_parameters([&](Parameter& parameter) {
      if (parameter.name().find("attn.c_proj") != std::string::npos)
        fill_zero(master_of(parameter), stream_);
    });
  }
  EXPECT_TRUE(same_bits(forward(sequential, {}), forward(parallel, {})));
}

}  // namespace
}  // namespace hybrid_trainer::testing
