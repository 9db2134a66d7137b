// Models with block-sparse attention.
#include <gtest/gtest.h>

#include <sstream>

#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/core/messages.h"
#include "tests/support/gradient_check.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kTokenKinds = 50, kMaxTokens = 40;

class BlockPatternModel : public ::testing::TestWithParam<const char*> {
 protected:
  BlockPatternModel() {
    config_ = {.family = GetParam(),
               .layers = 2,
               .heads = 2,
               .width = 16,
               .context = kMaxTokens,
               .vocabulary = kTokenKinds};
    config_.attention_pattern = {
        .block = 4, .local_blocks = 1, .global_blocks = 1, .random_blocks = 1, .seed = 3};
  }
  std::unique_ptr<LanguageModel> make_with_pattern() {
    auto model = make_model(config_, 1, stream_);
    randomize([&](const ParameterVisitor& visit) { model->visit_parameters(visit); }, stream_);
    return model;
  }
  const Stream stream_ = test_stream();
  ModelConfig config_;
};

/// Token by token, many tokens together, and after going back.
TEST_P(BlockPatternModel, DecodingMatchesFullPass) {
  const auto model = make_with_pattern();
  const Tensor tokens = random_tokens({1, kMaxTokens}, kTokenKinds, 5, stream_);
  const Tensor wanted = model->logits(tokens, {.training = false}, stream_);
  CachedDecoder decoder(*model, DType::kF32, stream_);
  for (const std::int64_t length : {2, 3, 9, 30, 31, 40, 17, 21}) {
    decoder.see({tokens.data<std::int32_t>(), static_cast<std::size_t>(length)});
    for (std::size_t v = 0; v < kTokenKinds; ++v)
      ASSERT_NEAR(decoder.logits()[v], wanted.rows(length - 1, length).data<float>()[v], 1e-5)
          << length;
  }
  config_.attention_pattern.local_blocks = 10;  // all blocks
  EXPECT_FALSE(
      same_bits(make_with_pattern()->logits(tokens, {.training = false}, stream_).rows(39, 40),
                wanted.rows(39, 40)));
}

/// A query sees 2 to 14 keys instead of 1 to 40.
TEST_P(BlockPatternModel, StepFlopsCountVisibleKeys) {
  const auto with = make_with_pattern();
  config_.attention_pattern = {};
  const double keys = (4 * 2 + 4 * 6 + 32 * 10) / 40.0;  // on average
  const auto flops = [](LanguageModel& model) {
    return model.flops_of({1, kMaxTokens}, kMaxTokens);
  };
  EXPECT_NEAR(flops(*make_with_pattern()) - flops(*with), 2 * 3 * 4 * (20 - keys) * 16 * kMaxTokens,
              1);
}

TEST_P(BlockPatternModel, FolderRoundTripsWeightsWithWarning) {
  const TemporaryFolder scratch;
  const auto model = make_model(config_, 1, stream_);
  std::ostringstream said;
  send_warnings_to(&said);
  export_hugging_face(*model, nullptr, scratch / "out", stream_);
  send_warnings_to(&std::cerr);
  EXPECT_TRUE(contains(said.str(), "config.json has no key for model.attention_pattern"));
  EXPECT_FALSE(read_hugging_face_model_config(scratch / "out", 0).attention_pattern.is_on());
  const auto back = make_model(config_, 2, stream_);
  read_hugging_face_weights(scratch / "out", *back, stream_);
  const Tensor tokens = random_tokens({1, 20}, kTokenKinds, 5, stream_);
  EXPECT_TRUE(same_bits(model->logits(tokens, {.training = false}, stream_),
                        back->logits(tokens, {.training = false}, stream_)));
}

INSTANTIATE_TEST_SUITE_P(Families, BlockPatternModel, ::testing::Values("gpt2", "llama"));

TEST(BlockPatternConfig, RejectsInvalidPatternInOneLine) {
  using Lines = std::vector<std::string>;
  const auto of = [](const ModelConfig& config) {
    std::vector<std::string> problems;
    collect_model_problems(config, problems);
    return problems;
  };
  ModelConfig config{.family = "mistral", .layers = 2, .heads = 2, .width = 16};
  config.attention_pattern.global_blocks = 2;
  EXPECT_EQ(of(config), Lines{"model.attention_pattern.local_blocks: got 0 with global_blocks or "
                              "random_blocks; want at least 1, the query's own block"});
  config.attention_pattern.local_blocks = 3;
  EXPECT_EQ(of(config), Lines{});
  config.window = 9;
  EXPECT_EQ(of(config),
            Lines{"model.attention_pattern.local_blocks: got 3 with model.window 9; want only one "
                  "of them, because local blocks already limit attention like a window"});
  config.window = 0;
  config.family = "mamba2";
  EXPECT_EQ(of(config).size(), 3u);  // it has neither pattern keys nor heads
  config.family = "semiseparable";
  config.mixers = "a";
  EXPECT_EQ(of(config), Lines{});
  config.bidirectional = true;
  EXPECT_EQ(of(config), Lines{"model.attention_pattern.local_blocks: got 3, but attention patterns "
                              "are only for decoders, and model.bidirectional is true"});
}

}  // namespace
}  // namespace hybrid_trainer::testing
