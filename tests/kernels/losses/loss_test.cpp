#include "hybrid_trainer/kernels/loss.h"
#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/kernels/reductions.h"

#include <algorithm>
#include <limits>

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

struct LossReference {
  Values losses;
  Values gradient;
};

LossReference reference(const Tensor& logits, const Tensor& targets, std::int64_t vocabulary,
                        double gradient_scale) {
  const Values x = values_of(logits);
  const auto stride = static_cast<std::size_t>(logits.size(1));
  LossReference result{{}, Values(x.size(), 0.0)};
  for (std::int64_t n = 0; n < logits.size(0); ++n) {
    const double* row = x.data() + static_cast<std::size_t>(n) * stride;
    const auto target = static_cast<std::size_t>(targets.data<std::int32_t>()[n]);
    const double highest = *std::max_element(row, row + vocabulary);
    double sum = 0;
    for (std::int64_t i = 0; i < vocabulary; ++i) sum += std::exp(row[i] - highest);
    result.losses.push_back(highest + std::log(sum) - row[target]);
    for (std::size_t i = 0; i < static_cast<std::size_t>(vocabulary); ++i) {
      result.gradient[static_cast<std::size_t>(n) * stride + i] =
          (std::exp(row[i] - highest) / sum - (i == target ? 1 : 0)) * gradient_scale;
    }
  }
  return result;
}

TEST(SoftmaxCrossEntropy, MatchesReferenceWithPaddingAndLargeLogits) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor logits = random_tensor({37, 509}, dtype, 1, stream, 30.0);
    const Tensor targets = random_ids({37}, 501, 2, stream);
    const Tensor losses = Tensor::empty({37}, DType::kF32, MemoryKind::kActivations, stream);
    const LossReference wanted = reference(logits, targets, 501, 0.25);
    softmax_cross_entropy(losses, logits, targets, 501, 0.25f, stream);
    expect_close(losses, wanted.losses, 2e-6, name_of(dtype));
    expect_close(logits, wanted.gradient, dtype == DType::kF32 ? 1e-6 : 2e-3, name_of(dtype));
    for (int i = 501; i < 509; ++i) EXPECT_EQ(values_of(logits)[static_cast<std::size_t>(i)], 0.0);
  }
}

TEST(SoftmaxCrossEntropy, ZeroGradientScaleKeepsLogits) {
  const Stream stream = cpu_stream();
  const Tensor logits = random_tensor({5, 64}, DType::kF32, 3, stream);
  const Tensor before = clone(logits, stream);
  const Tensor targets = random_ids({5}, 60, 4, stream);
  const Tensor losses = Tensor::empty({5}, DType::kF32, MemoryKind::kActivations, stream);
  softmax_cross_entropy(losses, logits, targets, 60, 0.0f, stream);
  expect_same_bits(logits, before);
  expect_close(losses, reference(before, targets, 60, 0).losses, 1e-6);
}

TEST(SoftmaxCrossEntropy, MaskedTargetsGiveZeroLossAndGradient) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor logits = random_tensor({9, 64}, dtype, 3, stream), before = clone(logits, stream);
    const Tensor targets = random_ids({9}, 60, 4, stream);
    const LossReference wanted = reference(logits, targets, 60, 1);
    for (const int row : {0, 4, 8}) targets.data<std::int32_t>()[row] = kNoTarget;
    const Tensor losses = Tensor::empty({9}, DType::kF32, MemoryKind::kActivations, stream);
    softmax_cross_entropy(losses, logits, targets, 60, 0.0f, stream);
    expect_same_bits(logits, before);
    softmax_cross_entropy(losses, logits, targets, 60, 1.0f, stream);
    for (int row = 0; row < 9; ++row) {
      const bool learnt = row % 4 != 0;
      EXPECT_NEAR(losses.data<float>()[row], learnt ? wanted.losses[row] : 0.0, 1e-5) << row;
      const Values gradient = values_of(logits.rows(row, row + 1));
      for (std::size_t i = 0; i < 64; ++i)
        EXPECT_NEAR(gradient[i], learnt ? wanted.gradient[row * 64 + i] : 0.0, 1e-2) << row;
    }
  }
}

TEST(SoftmaxCrossEntropy, NaNLogitGivesNaNLoss) {
  const Stream stream = cpu_stream();
  const Tensor logits = random_tensor({2, 64}, DType::kF32, 5, stream);
  logits.data<float>()[7] = std::numeric_limits<float>::quiet_NaN();
  const Tensor targets = random_ids({2}, 64, 6, stream);
  const Tensor losses = Tensor::empty({2}, DType::kF32, MemoryKind::kActivations, stream);
  softmax_cross_entropy(losses, logits, targets, 64, 1.0f, stream);
  EXPECT_TRUE(std::isnan(losses.data<float>()[0]));
  EXPECT_FALSE(std::isnan(losses.data<float>()[1]));
}

TEST(SoftmaxCrossEntropy, ReportsTargetBeyondVocabulary) {
  const Stream stream = cpu_stream();
  const Tensor logits = random_tensor({3, 64}, DType::kF32, 7, stream);
  const Tensor targets = tensor_of({1, 61, 2}, {3}, DType::kI32, stream);
  const Tensor losses = Tensor::empty({3}, DType::kF32, MemoryKind::kActivations, stream);
  try {
    softmax_cross_entropy(losses, logits, targets, 60, 1.0f, stream);
    FAIL() << "accepted target 61";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("target 1 is 61"), std::string::npos) << error.what();
  }
  EXPECT_THROW(softmax_cross_entropy(losses, logits, targets, 65, 1.0f, stream), ShapeMismatch);
}

TEST(Quotient, IsComputedInDouble) {
  const Stream stream = cpu_stream();
  const Tensor losses = random_tensor({30011}, DType::kF32, 8, stream);
  double sum = 0;
  for (const double value : values_of(losses)) sum += value;
  const Tensor result = empty_result(stream), again = empty_result(stream);
  quotient(result, losses, 30011, stream);
  quotient(again, losses, 30011, stream);
  EXPECT_NEAR(wait_for_value(result, stream), sum / 30011, 1e-13);
  EXPECT_EQ(wait_for_value(result, stream), wait_for_value(again, stream));
}

}  // namespace
}  // namespace hybrid_trainer::kernels
