#include "hybrid_trainer/nn/language_head.h"
#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/kernels/reductions.h"

#include <gtest/gtest.h>

#include "tests/support/gradient_check.h"

namespace hybrid_trainer::testing {
namespace {

/// A head whose wide table forces chunks of 64 rows.
class LanguageHeadTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kRows = 150, kWidth = 3, kVocabulary = 262100, kPadded = 262144;

  LanguageHeadTest() {
    copy(master_of(table_), normal_tensor({kPadded, kWidth}, 5, stream_), stream_);
  }
  struct Result {
    double loss;
    Tensor dx;
  };
  Result run(const Tensor& x, const Tensor& targets, float gradient_scale, double divisor = 0) {
    PlainTape tape{Pass{}};
    if (divisor == 0) divisor = static_cast<double>(x.size(0));
    const double loss = kernels::wait_for_value(
        head_.loss(x, targets, divisor, gradient_scale, tape, stream_), stream_);
    return {loss, head_.backward(tape, stream_)};
  }
  const Stream stream_ = test_stream();
  Parameter table_{"wte.weight", {kPadded, kWidth}, Role::kEmbedding, stream_};
  StepGradients step_{[this](const ParameterVisitor& visit) { visit(table_); }, stream_};
  LanguageHead head_{table_, kVocabulary};
  const Tensor x_ = normal_tensor({kRows, kWidth}, 3, stream_);
  const Tensor targets_ = random_tokens({kRows}, kVocabulary, 4, stream_);
};

TEST_F(LanguageHeadTest, ChunkedBatchMatchesSeparateBatches) {
  const Result whole = run(x_, targets_, 1);
  const std::vector<double> whole_gradient = values_of(table_.gradient());
  step_.begin(3);
  double loss = 0;
  std::vector<double> dx;
  for (std::int64_t begin = 0; begin < kRows; begin += 50) {
    const float share = 50.0f / kRows;
    const Result part = run(x_.rows(begin, begin + 50), targets_.rows(begin, begin + 50), share);
    loss += share * part.loss;
    const auto values = values_of(part.dx);
    dx.insert(dx.end(), values.begin(), values.end());
  }
  EXPECT_NEAR(whole.loss, loss, 1e-6 * loss);
  EXPECT_LT(relative_error(values_of(whole.dx), dx), 1e-6);
  EXPECT_LT(relative_error(whole_gradient, values_of(table_.gradient())), 1e-5);
}

TEST_F(LanguageHeadTest, AllocatesLogitsOfAtMostOneChunk) {
  const auto most_logits = [&](std::int64_t rows) {
    stream_.pool()->reset_peaks();
    run(x_.rows(0, rows), targets_.rows(0, rows), 1);
    const std::size_t bytes =
        stream_.pool()->use().peak[static_cast<std::size_t>(MemoryKind::kLogits)];
    step_.begin();
    return bytes;
  };
  constexpr std::size_t kRow = kPadded * sizeof(float);
  EXPECT_EQ(most_logits(150), 64 * kRow);
  EXPECT_EQ(most_logits(64), 64 * kRow);
  EXPECT_EQ(most_logits(2), 2 * kRow);
}

TEST_F(LanguageHeadTest, LossMatchesSoftmaxCrossEntropy) {
  const Tensor logits = head_.logits(x_.rows(0, 2), stream_);
  double wanted = 0;
  for (std::int64_t row = 0; row < 2; ++row) {
    const float* values = logits.data<float>() + row * kPadded;
    double sum = 0;
    for (std::int64_t v = 0; v < kVocabulary; ++v) sum += std::exp(static_cast<double>(values[v]));
    wanted += (std::log(sum) - values[targets_.data<std::int32_t>()[row]]) / 2;
  }
  EXPECT_NEAR(run(x_.rows(0, 2), targets_.rows(0, 2), 1).loss, wanted, 1e-5);
}

TEST_F(LanguageHeadTest, IgnoresRowsWithoutTarget) {
  const Result some = run(x_.rows(40, 60), targets_.rows(40, 60), 1);
  const std::vector<double> gradient = values_of(table_.gradient());
  const Tensor targets = random_tokens({kRows}, kVocabulary, 4, stream_);
  for (std::int64_t i = 0; i < kRows; ++i)
    if (i < 40 || i >= 60) targets.data<std::int32_t>()[i] = kNoTarget;
  step_.begin();
  const Result all = run(x_, targets, 1, 20);
  EXPECT_NEAR(all.loss, some.loss, 1e-6 * some.loss);
  EXPECT_LT(relative_error(values_of(table_.gradient()), gradient), 1e-6);
  EXPECT_LT(relative_error(values_of(all.dx.rows(40, 60)), values_of(some.dx)), 1e-6);
  for (const double value : values_of(all.dx.rows(0, 40))) ASSERT_EQ(value, 0);
}

TEST_F(LanguageHeadTest, ScalesGradientsAndKeepsPaddingZero) {
  const Result once = run(x_.rows(0, 20), targets_.rows(0, 20), 1);
  const std::vector<double> gradient = values_of(table_.gradient());
  for (std::size_t i = kVocabulary * kWidth; i < gradient.size(); ++i)
    ASSERT_EQ(gradient[i], 0) << i;
  step_.begin();
  const Result half = run(x_.rows(0, 20), targets_.rows(0, 20), 0.5f);
  EXPECT_EQ(once.loss, half.loss);
  std::vector<double> doubled = values_of(half.dx);
  for (double& value : doubled) value *= 2;
  EXPECT_LT(relative_error(doubled, values_of(once.dx)), 1e-6);
}

}  // namespace
}  // namespace hybrid_trainer::testing
