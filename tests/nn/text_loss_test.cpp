#include "hybrid_trainer/nn/text_loss.h"

#include <gtest/gtest.h>

#include <numeric>

#include "hybrid_trainer/kernels/reductions.h"
#include "tests/support/texts_batch.h"

namespace hybrid_trainer::testing {
namespace {

using LossKind = TextLoss::Kind;

constexpr std::int64_t kSlots = 10;

double cosine(const std::vector<double>& x, std::int64_t width, std::int64_t i, std::int64_t j,
              std::int64_t dimensions) {
  double product = 0, first = 0, second = 0;
  for (std::int64_t c = 0; c < dimensions; ++c) {
    const double a = x[static_cast<std::size_t>(i * width + c)],
                 b = x[static_cast<std::size_t>(j * width + c)];
    product += a * b, first += a * a, second += b * b;
  }
  return product / std::sqrt(first * second);
}

/// The losses in double, from their definitions.
class TextLossInDouble {
 public:
  TextLossInDouble(const TextLoss& loss, const Batch& batch, const Tensor& outputs)
      : loss_(loss), batch_(batch), x_(values_of(outputs)), width_(outputs.size(1)) {}

  double operator()() const {
    double sum = 0;
    if (loss_.kind >= LossKind::kContrastive && loss_.kind <= LossKind::kCosine) {
      const std::vector<std::int64_t> all{width_};
      for (const std::int64_t channels : loss_.dimensions.empty() ? all : loss_.dimensions)
        sum += of_cosines(channels);
      return sum;
    }
    for (std::int64_t i = 0; i < kSlots; ++i)
      if (role(i) == 0) sum += of_text(i) / batch_.loss_divisor();
    return sum;
  }

 private:
  std::int32_t role(std::int64_t i) const { return batch_.at("roles").data<std::int32_t>()[i]; }
  double label(std::int64_t i, std::int64_t c = 0) const {
    const Tensor& labels = batch_.at("labels");
    return labels.data<float>()[i * labels.elements() / kSlots + c];
  }
  double x(std::int64_t i, std::int64_t c) const {
    return x_[static_cast<std::size_t>(i * width_ + c)];
  }

  double of_text(std::int64_t i) const {
    if (loss_.kind == LossKind::kReward) return std::log1p(std::exp(x(i + 1, 0) - x(i, 0)));
    if (loss_.kind == LossKind::kClass) {
      double sum = 0;
      for (std::int64_t c = 0; c < width_; ++c) sum += std::exp(x(i, c));
      return std::log(sum) - x(i, batch_.at("classes").data<std::int32_t>()[i]);
    }
    double sum = 0;
    for (std::int64_t c = 0; c < width_; ++c)
      sum += loss_.kind == LossKind::kRegression
                 ? std::pow(x(i, c) - label(i, c), 2)
                 : std::log1p(std::exp(x(i, c))) - label(i, c) * x(i, c);
    return sum / static_cast<double>(width_);
  }

  double of_cosines(std::int64_t channels) const {
    const auto of = [&](std::int64_t i, std::int64_t j) {
      return cosine(x_, width_, i, j, channels);
    };
    double sum = 0, pairs = 1;  // of kCosent
    for (std::int64_t i = 0; i < kSlots; ++i) {
      if (loss_.kind == LossKind::kContrastive) {
        const double share = loss_.symmetric ? 0.5 : 1;
        double others = 0;
        for (std::int64_t j = 0; j < kSlots; ++j)
          if (role(i) == 0 ? role(j) > 0 : role(j) == 0) others += std::exp(loss_.scale * of(i, j));
        if (role(i) == 0) sum += share * (std::log(others) - loss_.scale * of(i, i + 1));
        if (role(i) == 1 && loss_.symmetric)
          sum += share * (std::log(others) - loss_.scale * of(i, i - 1));
      } else if (role(i) == 0 && loss_.kind == LossKind::kCosine) {
        sum += std::pow(of(i, i + 1) - label(i), 2);
      } else if (role(i) == 0) {
        for (std::int64_t j = 0; j < kSlots; ++j)
          if (role(j) == 0 && label(i) > label(j))
            pairs += std::exp(loss_.scale * (of(j, j + 1) - of(i, i + 1)));
      }
    }
    return loss_.kind == LossKind::kCosent ? std::log(pairs) : sum / batch_.loss_divisor();
  }

  const TextLoss& loss_;
  const Batch& batch_;
  const std::vector<double> x_;
  const std::int64_t width_;
};

class TextLossTest : public ::testing::Test {
 protected:
  double loss_value(const TextLoss& loss, const Tensor& outputs, const Batch& batch) const {
    return kernels::wait_for_value(loss.compute(outputs, batch, 0, stream_), stream_);
  }
  Tensor outputs_of(const TextLoss& loss) const {
    const std::int64_t outputs = outputs_for(loss.kind);
    return normal_tensor({kSlots, outputs == 0 ? 8 : outputs}, 9, stream_);
  }
  const Stream stream_ = test_stream();
};

TEST_F(TextLossTest, MatchesDefinitionInDouble) {
  for (const TextLoss& loss : text_losses()) {
    const Batch batch = texts_batch(loss.kind, 30, stream_);
    const Tensor outputs = outputs_of(loss);
    const double wanted = TextLossInDouble(loss, batch, outputs)();
    ASSERT_GT(wanted, 0.01) << name_of(loss);
    EXPECT_NEAR(loss_value(loss, outputs, batch), wanted, 2e-6 * (1 + wanted)) << name_of(loss);
  }
}

TEST_F(TextLossTest, LeavesOutputsWithoutGradientScale) {
  for (const TextLoss& loss : text_losses()) {
    const Batch batch = texts_batch(loss.kind, 30, stream_);
    const Tensor outputs = outputs_of(loss), kept = clone(outputs, stream_);
    const double first = loss_value(loss, outputs, batch);
    EXPECT_TRUE(same_bits(outputs, kept)) << name_of(loss);
    EXPECT_EQ(kernels::wait_for_value(loss.compute(outputs, batch, 1, stream_), stream_), first)
        << name_of(loss);
    EXPECT_FALSE(same_bits(outputs, kept)) << name_of(loss);
  }
}

/// A micro-batch has its share of the examples, also if it has more or fewer.
TEST_F(TextLossTest, MeanOfMicroBatchesIsThatOfTheBatch) {
  for (const TextLoss& loss : text_losses()) {
    if (loss.kind == LossKind::kContrastive || loss.kind == LossKind::kCosent) continue;
    const Batch batch = texts_batch(loss.kind, 30, stream_);
    const Tensor outputs = outputs_of(loss);
    const double parts = loss_value(loss, outputs.rows(0, 5), batch.examples(0, 1)) +
                         loss_value(loss, outputs.rows(5, 10), batch.examples(1, 2));
    EXPECT_NEAR(parts / 2, loss_value(loss, outputs, batch), 1e-6) << name_of(loss);
  }
}

/// As torch.nn.CrossEntropyLoss(weight=…): the weighted sum, divided by the sum of the weights.
TEST_F(TextLossTest, ClassWeightsMultiplyLossAndGradient) {
  const TextLoss loss{.kind = LossKind::kClass};
  const Batch plain = texts_batch(loss.kind, 30, stream_);
  std::vector<NamedTensor> tensors = plain.tensors();
  const Tensor weights = Tensor::zeros({2, 5}, DType::kF32, MemoryKind::kData, stream_);
  const auto role = [&](std::int64_t i) { return plain.at("roles").data<std::int32_t>()[i]; };
  double sum = 0;
  for (std::int64_t i = 0; i < kSlots; ++i) {
    if (role(i) == 0) weights.data<float>()[i] = 0.25f * static_cast<float>(1 + i % 3);
    sum += static_cast<double>(weights.data<float>()[i]);
  }
  tensors.push_back({"labels", weights});
  Batch weighted(tensors, plain.tokens_per_example());
  weighted.set_targets(sum);
  const Tensor outputs = outputs_of(loss), gradient = clone(outputs, stream_);
  double wanted = 0;
  for (std::int64_t i = 0; i < kSlots; ++i) {
    if (role(i) != 0) continue;
    Batch alone = plain.examples(0, 2);
    std::vector<NamedTensor> parts = alone.tensors();
    for (NamedTensor& part : parts) {
      if (part.name != "classes") continue;
      part.tensor = clone(part.tensor, stream_);
      for (std::int64_t k = 0; k < kSlots; ++k)
        if (k != i) part.tensor.data<std::int32_t>()[k] = kNoTarget;
    }
    alone = Batch(std::move(parts), plain.tokens_per_example());
    alone.set_targets(1);
    const double weight = static_cast<double>(weights.data<float>()[i]) / sum;
    const Tensor own = clone(outputs, stream_);
    wanted += weight * kernels::wait_for_value(loss.compute(own, alone, 1, stream_), stream_);
    for (std::int64_t c = 0; c < 3; ++c) {
      const std::int64_t at = i * 3 + c;
      gradient.data<float>()[at] = static_cast<float>(weight) * own.data<float>()[at];
    }
  }
  for (std::int64_t i = 0; i < kSlots; ++i)
    if (role(i) != 0) std::fill_n(gradient.data<float>() + i * 3, 3, 0.0f);
  EXPECT_NEAR(loss_value(loss, outputs, weighted), wanted, 1e-6);
  loss.compute(outputs, weighted, 1, stream_);
  EXPECT_LT(relative_error(outputs, gradient), 1e-6);
}

/// An anchor without negatives has nothing to be compared with.
TEST_F(TextLossTest, SinglePairHasNoContrastiveLossAndGradient) {
  for (const bool symmetric : {false, true}) {
    const TextLoss loss{.kind = LossKind::kContrastive, .symmetric = symmetric};
    Batch batch = texts_batch(loss.kind, 30, stream_).examples(0, 1);
    for (const char* name : {"ends", "roles"})
      std::fill_n(batch.at(name).data<std::int32_t>() + 2, 3,
                  std::string_view(name) == "ends" ? 0 : -1);
    batch.set_targets(1);
    const Tensor outputs = normal_tensor({5, 8}, 9, stream_);
    EXPECT_EQ(kernels::wait_for_value(loss.compute(outputs, batch, 1, stream_), stream_), 0);
    for (const double gradient : values_of(outputs)) EXPECT_NEAR(gradient, 0, 1e-6);
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
