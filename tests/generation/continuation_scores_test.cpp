#include "src/generation/evaluation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/models/model_family.h"
#include "tests/support/gradient_check.h"

namespace hybrid_trainer {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kVocabulary = 61;

class ContinuationScoresTest : public ::testing::TestWithParam<const char*> {
 protected:
  ContinuationScoresTest() {
    ModelConfig config{.family = GetParam(),
                       .layers = 2,
                       .heads = 4,
                       .width = 32,
                       .context = 64,
                       .vocabulary = kVocabulary};
    if (config.family == "mistral") config.window = 5;
    if (config.family == "mamba2") {
      config.heads = ModelConfig{}.heads;
      config.state_space = {.heads = 4, .head_size = 16, .state_size = 8};
    }
    model_ = make_model(config, 3, stream_);
    testing::randomize([this](const ParameterVisitor& visit) { model_->visit_parameters(visit); },
                       stream_);
  }
  static Tokens some_tokens(std::uint64_t seed, std::int64_t count) {
    Tokens text;
    for (std::int64_t i = 0; i < count; ++i)
      text.push_back(static_cast<std::int32_t>(
          random_below({seed}, static_cast<std::uint64_t>(i), std::uint64_t{kVocabulary})));
    return text;
  }
  /// Reference: one forward pass over the entire text.
  double expected(const Tokens& prompt, const Tokens& continuation) {
    Tokens text = prompt;
    text.insert(text.end(), continuation.begin(), continuation.end());
    const std::int64_t count = std::ssize(text);
    const Tensor ids = Tensor::empty({1, count}, DType::kI32, MemoryKind::kData, stream_);
    std::ranges::copy(text, ids.data<std::int32_t>());
    const Tensor logits = model_->logits(ids, {.training = false}, stream_);
    const std::int64_t width = logits.size(1);
    double sum = 0;
    for (std::int64_t i = std::ssize(prompt); i < count; ++i) {
      const float* const row = logits.data<float>() + (i - 1) * width;
      double total = 0;
      for (std::int64_t word = 0; word < kVocabulary; ++word) total += std::exp(double{row[word]});
      sum += row[text[static_cast<std::size_t>(i)]] - std::log(total);
    }
    return sum;
  }
  Stream stream_{MemoryPool::create("test")};
  std::unique_ptr<LanguageModel> model_;
};

TEST_P(ContinuationScoresTest, MatchFullForwardPass) {
  ContinuationScores scores(*model_, DType::kF32, stream_);
  std::uint64_t seed = 1;
  for (const std::int64_t length : {1, 3, 20, 21, 7}) {
    const Tokens prompt = some_tokens(length == 21 ? 30 : seed, length);
    std::vector<Tokens> continuations;
    for (const std::int64_t count : {1, 2, 5, 1, 17, 2})
      continuations.push_back(some_tokens(++seed, count));
    const std::vector<double> found = scores.log_likelihoods(prompt, continuations);
    ASSERT_EQ(found.size(), continuations.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected(prompt, continuations[i]), 2e-5)
          << "prompt of " << length << ", continuation " << i;
  }
}

TEST_P(ContinuationScoresTest, AcceptTextsUpToContextLength) {
  ContinuationScores scores(*model_, DType::kF32, stream_);
  const Tokens prompt = some_tokens(1, 60);
  const std::vector<Tokens> fits{some_tokens(2, 4)}, longer{some_tokens(2, 5)};
  EXPECT_NEAR(scores.log_likelihoods(prompt, fits).front(), expected(prompt, fits.front()), 2e-5);
  EXPECT_THROW(scores.log_likelihoods(prompt, longer), Error);
  EXPECT_THROW(scores.log_likelihoods(prompt, std::vector<Tokens>{{}}), Error);
}

INSTANTIATE_TEST_SUITE_P(Families, ContinuationScoresTest,
                         ::testing::Values("gpt2", "llama", "mistral", "mamba2"));

}  // namespace
}  // namespace hybrid_trainer
