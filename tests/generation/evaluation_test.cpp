#include "src/generation/evaluation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/token_dataset.h"
#include "hybrid_trainer/models/model_family.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

class Evaluation : public ::testing::Test {
 protected:
  /// A validation split with the tokens 0, 1, 2, … 63, 0, ….
  TokenDataset counting_tokens(std::int64_t count) const {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i % 64);
    ShardWriter writer({.folder = folder_.path(), .split = "val", .vocabulary_size = 64});
    writer.append(tokens);
    writer.finish();
    return TokenDataset(folder_.path(), Split::kValidation, 64);
  }

  TemporaryFolder folder_;
  Stream stream_{MemoryPool::create("test")};
};

/// The loss is the mean target token, so the sum over a split shows which targets were evaluated.
class MeanTarget final : public LossModel {
 public:
  Tensor forward(const Batch& batch, float, ActivationTape& tape, const Stream& stream) override {
    EXPECT_FALSE(tape.keeps());
    EXPECT_FALSE(tape.pass().training);
    segment = tape.pass().segment;
    if (batch.size() > max_examples) throw OutOfMemory("full", 1, 0);
    const auto* targets = batch.at("targets").data<std::int32_t>();
    Tensor loss = Tensor::empty({1}, DType::kF64, MemoryKind::kWorkspace, stream);
    *loss.data<double>() = factor * std::accumulate(targets, targets + batch.tokens(), 0.0) /
                           static_cast<double>(batch.tokens());
    return loss;
  }
  void backward(const Batch&, ActivationTape&, const Stream&) override {
    FAIL() << "evaluation must not run backward";
  }
  void visit_parameters(const ParameterVisitor&) override {}
  bool supports_segments() const override { return true; }
  bool carries_state() const override { return true; }
  double factor = 1;
  std::int64_t max_examples = 100;
  std::int64_t segment = -1;  // of the latest pass
};

TEST_F(Evaluation, ProcessesLongWindowsInSegments) {
  const TokenDataset tokens = counting_tokens(5001);
  MeanTarget model;
  const auto segment = [&](std::int64_t window, std::int64_t wanted) {
    const OrderedBatches windows(TokenWindows::for_evaluation(tokens, window), 1, stream_);
    evaluate(model, windows, DType::kF32, stream_, {}, wanted);
    return model.segment;
  };
  EXPECT_EQ(segment(1000, 0), 0);
  EXPECT_EQ(segment(5000, 0), 2048);
  EXPECT_EQ(segment(1000, 64), 64);
}

TEST_F(Evaluation, WeighsEveryTokenOnce) {
  const TokenDataset tokens = counting_tokens(27);  // six windows of four targets and one of two
  const OrderedBatches windows(TokenWindows::for_evaluation(tokens, 4), 4, stream_);
  MeanTarget model;
  const EvaluationResult result = evaluate(model, windows, DType::kF32, stream_);
  EXPECT_EQ(result.tokens, 26);
  EXPECT_NEAR(result.loss, 13.5, 1e-9);
  EXPECT_NEAR(result.perplexity, std::exp(13.5), 1e-3);
}

TEST_F(Evaluation, OutOfMemorySplitsBatch) {
  const TokenDataset tokens = counting_tokens(27);  // 4 and 3 windows, the last one short
  const OrderedBatches windows(TokenWindows::for_evaluation(tokens, 4), 4, stream_);
  MeanTarget model;
  for (const std::int64_t most : {2, 1}) {
    model.max_examples = most;
    const EvaluationResult result = evaluate(model, windows, DType::kF32, stream_);
    EXPECT_EQ(result.tokens, 26);
    EXPECT_NEAR(result.loss, 13.5, 1e-9);
  }
  model.max_examples = 0;
  EXPECT_THROW(evaluate(model, windows, DType::kF32, stream_), OutOfMemory);
}

/// Five batches on three ranks: two ranks have two, the last one has one.
TEST_F(Evaluation, RanksTogetherMatchSingleRank) {
  const TokenDataset tokens = counting_tokens(41);
  MeanTarget model;
  const OrderedBatches windows(TokenWindows::for_evaluation(tokens, 4), 2, stream_);
  ASSERT_EQ(windows.batches(), 5);
  const EvaluationResult alone = evaluate(model, windows, DType::kF32, stream_);
  struct Given {};
  std::vector<std::string> given;
  for (int index = 0; index < 3; ++index) {
    const auto keep = [&](std::string_view bytes) -> std::vector<std::string> {
      given.emplace_back(bytes);
      throw Given();
    };
    EXPECT_THROW(evaluate(model, windows, DType::kF32, stream_,
                          {.index = index, .count = 3, .gather = keep}),
                 Given);
  }
  const auto all = [&](std::string_view) { return given; };
  for (int index = 0; index < 3; ++index) {
    const EvaluationResult shared =
        evaluate(model, windows, DType::kF32, stream_, {.index = index, .count = 3, .gather = all});
    EXPECT_EQ(shared.loss, alone.loss);
    EXPECT_EQ(shared.tokens, alone.tokens);
  }
}

TEST_F(Evaluation, IgnoresDropoutAndKeepsWeights) {
  const TokenDataset tokens = counting_tokens(33);
  const OrderedBatches windows(TokenWindows::for_evaluation(tokens, 8), 2, stream_);
  const ModelConfig plain{.layers = 2, .heads = 2, .width = 16, .context = 8, .vocabulary = 64};
  ModelConfig dropping = plain;
  dropping.dropout = 0.5;
  const auto first_owner = make_model(plain, 5, stream_),
             second_owner = make_model(dropping, 5, stream_);
  LanguageModel &first = *first_owner, &second = *second_owner;
  const double loss = evaluate(first, windows, DType::kF32, stream_).loss;
  EXPECT_EQ(evaluate(second, windows, DType::kF32, stream_).loss, loss);
  EXPECT_EQ(evaluate(second, windows, DType::kF32, stream_).loss, loss);
  EXPECT_NEAR(loss, std::log(64.0), 1.0);
}

TEST_F(Evaluation, NonFiniteLossThrowsDiverged) {
  const TokenDataset tokens = counting_tokens(10);
  const OrderedBatches windows(TokenWindows::for_evaluation(tokens, 4), 2, stream_);
  MeanTarget model;
  model.factor = NAN;
  EXPECT_THROW(evaluate(model, windows, DType::kF32, stream_), Diverged);
}

}  // namespace
}  // namespace hybrid_trainer
