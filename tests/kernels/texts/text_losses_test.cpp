#include <algorithm>

#include "hybrid_trainer/kernels/texts.h"
#include "tests/kernels/texts/texts_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr std::int64_t kSlots = RolesCase::kSlots;
constexpr float kGradientScale = 0.25f;  // factor of gradients

using Loss = std::function<Values(const Values&)>;  // losses of the slots, in f64

/// Derivatives of the summed losses, by central differences in f64.
Values slopes_of(const Values& x, const Loss& loss) {
  const auto total = [&](std::size_t i, double by) {
    Values moved = x;
    moved[i] += by;
    double sum = 0;
    for (const double value : loss(moved)) sum += value;
    return sum;
  };
  Values slopes;
  for (std::size_t i = 0; i < x.size(); ++i)
    slopes.push_back((total(i, 1e-5) - total(i, -1e-5)) / 2e-5);
  return slopes;
}

/// Calls compute(losses, x, gradient factor) without and with gradients.
void expect_loss(const Tensor& x, const Loss& loss, const Stream& stream,
                 const std::function<void(const Tensor&, const Tensor&, float)>& compute,
                 const std::string& what) {
  const Values given = values_of(x);
  const Tensor losses = empty_f32({kSlots}, stream), before = clone(x, stream);
  compute(losses, x, 0);
  expect_same_bits(x, before);
  expect_close(losses, loss(given), 1e-6, what + ", losses");
  const Tensor alone = clone(losses, stream);
  compute(losses, x, kGradientScale);
  expect_same_bits(losses, alone);
  Values wanted = slopes_of(given, loss);
  for (double& slope : wanted) slope *= static_cast<double>(kGradientScale);
  expect_close(x, wanted, 1e-6, what + ", gradient");
}

/// Cosines, in [−1, 1].
Tensor random_cosines(const Shape& shape, const Stream& stream) {
  const Tensor x = random_tensor(shape, DType::kF32, 1, stream, 0.4);
  for (std::int64_t i = 0; i < x.elements(); ++i)
    x.data<float>()[i] = std::clamp(x.data<float>()[i], -1.0f, 1.0f);
  return x;
}

/// Cross entropy of the rows over the columns, as a softmax of the columns' list.
Values contrastive_by_formula(const Values& similarities, ContrastiveRows rows, double scale) {
  const bool anchors = rows == ContrastiveRows::kAnchors;
  Values losses(static_cast<std::size_t>(kSlots), 0.0);
  const auto at = [&](std::int64_t i, std::int64_t j) {
    return scale * similarities[static_cast<std::size_t>(i * kSlots + j)];
  };
  for (std::int64_t i = 0; i < kSlots; ++i) {
    if (!RolesCase::has(i, anchors ? 0 : 1)) continue;
    double sum = 0;
    for (std::int64_t j = 0; j < kSlots; ++j)
      if (anchors ? RolesCase::values()[static_cast<std::size_t>(j)] >= 1 : RolesCase::has(j, 0))
        sum += std::exp(at(i, j));
    losses[static_cast<std::size_t>(i)] = std::log(sum) - at(i, anchors ? i + 1 : i - 1);
  }
  return losses;
}

TEST(ContrastiveLoss, MatchesCrossEntropyInBothDirections) {
  const Stream stream = cpu_stream();
  for (const ContrastiveRows rows : kContrastiveRows) {
    for (const float scale : {1.0f, 20.0f}) {
      expect_loss(
          random_cosines({kSlots, kSlots}, stream),
          [&](const Values& x) {
            return contrastive_by_formula(x, rows, static_cast<double>(scale));
          },
          stream,
          [&](const Tensor& losses, const Tensor& x, float gradient_scale) {
            contrastive_loss(losses, x, RolesCase::roles(stream), rows, scale, gradient_scale,
                             stream);
          },
          concat("scale ", scale));
    }
  }
}

TEST(ContrastiveLoss, LargestScaleStaysFinite) {
  const Stream stream = cpu_stream();
  const Tensor x = random_cosines({kSlots, kSlots}, stream), losses = empty_f32({kSlots}, stream);
  for (std::int64_t i = 0; i < x.elements(); ++i)
    x.data<float>()[i] = x.data<float>()[i] < 0 ? -1.0f : 1.0f;
  contrastive_loss(losses, x, RolesCase::roles(stream), ContrastiveRows::kAnchors, kMaxCosineScale,
                   1, stream);
  for (const Tensor& tensor : {losses, x})
    for (const double value : values_of(tensor)) ASSERT_TRUE(std::isfinite(value));
  for (const float scale : {0.0f, -1.0f, 301.0f, NAN})
    EXPECT_THROW(contrastive_loss(losses, x, RolesCase::roles(stream), ContrastiveRows::kAnchors,
                                  scale, 1, stream),
                 Error);
}

TEST(ContrastiveLoss, ReportsAnchorWithoutPositive) {
  const Stream stream = cpu_stream();
  const Tensor x = random_cosines({3, 3}, stream), losses = empty_f32({3}, stream);
  const auto compute = [&](const Values& roles, ContrastiveRows rows) {
    contrastive_loss(losses, x, tensor_of(roles, {1, 3}, DType::kI32, stream), rows, 20, 1, stream);
  };
  EXPECT_THROW(compute({0, -1, -1}, ContrastiveRows::kAnchors), DataError);
  EXPECT_THROW(compute({0, 1, 0}, ContrastiveRows::kAnchors), DataError);
  EXPECT_THROW(compute({1, 0, 1}, ContrastiveRows::kPositives), DataError);
}

Values cosent_by_formula(const Values& cosines, const Values& labels, double scale) {
  double sum = 1;
  for (std::size_t i = 0; i < cosines.size(); ++i)
    for (std::size_t j = 0; j < cosines.size(); ++j)
      if (RolesCase::values()[i] == 0 && RolesCase::values()[j] == 0 && labels[i] > labels[j])
        sum += std::exp(scale * (cosines[j] - cosines[i]));
  Values losses(cosines.size(), 0.0);
  losses[0] = std::log(sum);
  return losses;
}

TEST(CosentLoss, RanksCosinesByLabels) {
  const Stream stream = cpu_stream();
  const Tensor labels = RolesCase::labels(stream), roles = RolesCase::roles(stream);
  for (const float scale : {1.0f, 20.0f}) {
    expect_loss(
        random_cosines({kSlots}, stream),
        [&](const Values& x) {
          return cosent_by_formula(x, values_of(labels), static_cast<double>(scale));
        },
        stream,
        [&](const Tensor& losses, const Tensor& x, float gradient_scale) {
          cosent_loss(losses, x, labels, roles, scale, gradient_scale, stream);
        },
        concat("scale ", scale));
  }
  const Tensor equal = tensor_of(Values(kSlots, 2.0), {kSlots}, DType::kF32, stream);
  const Tensor losses = empty_f32({kSlots}, stream), cosines = random_cosines({kSlots}, stream);
  cosent_loss(losses, cosines, equal, roles, 20, 1, stream);
  for (const Tensor& tensor : {losses, cosines})
    expect_close(tensor, Values(kSlots, 0.0), 0, "equal labels");
}

TEST(RewardLoss, MatchesBradleyTerryAndAddsMeasures) {
  const Stream stream = cpu_stream();
  const Tensor roles = RolesCase::roles(stream), scores = random_cosines({kSlots}, stream);
  const Tensor measures =
      Tensor::zeros({kRewardMeasures}, DType::kF64, MemoryKind::kActivations, stream);
  Values wanted(3, 0.0);
  const Values s = values_of(scores);
  for (std::int64_t i = 0; i < kSlots; ++i) {
    if (!RolesCase::has(i, 0)) continue;
    const double margin = s[static_cast<std::size_t>(i)] - s[static_cast<std::size_t>(i + 1)];
    wanted[0] += margin > 0 ? 2 : 0;
    wanted[1] += 2 * margin;
    wanted[2] += 2;
  }
  EXPECT_EQ(wanted[2], 10);
  const auto by_formula = [](const Values& x) {
    Values losses(x.size(), 0.0);
    for (std::size_t i = 0; i < x.size(); ++i)
      if (RolesCase::has(static_cast<std::int64_t>(i), 0))
        losses[i] = std::log(1 + std::exp(x[i + 1] - x[i]));
    return losses;
  };
  expect_loss(
      scores, by_formula, stream,
      [&](const Tensor& losses, const Tensor& x, float gradient_scale) {
        reward_loss(losses, x, roles, measures, gradient_scale, stream);
      },
      "reward");  // computes twice
  expect_close(measures, wanted, 1e-12, "measures");
  const Tensor far = tensor_of({-500, 500, 0}, {3}, DType::kF32, stream);
  const Tensor losses = empty_f32({3}, stream);
  reward_loss(losses, far, tensor_of({0, 1, -1}, {1, 3}, DType::kI32, stream), {}, 1, stream);
  expect_close(losses, {1000, 0, 0}, 1e-6);
  expect_close(far, {-1, 1, 0}, 1e-6);
  EXPECT_THROW(
      reward_loss(losses, far, tensor_of({0, -1, 1}, {1, 3}, DType::kI32, stream), {}, 1, stream),
      DataError);
}

/// Mean over three labels of term(x, label), at slots of role 0.
Values label_losses(const Values& x, const Values& labels,
                    const std::function<double(double, double)>& term) {
  Values losses(static_cast<std::size_t>(kSlots), 0.0);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (RolesCase::has(static_cast<std::int64_t>(i / 3), 0))
      losses[i / 3] += term(x[i], labels[i]) / 3;
  return losses;
}

TEST(LabelLosses, AverageOverLabelsOfFirstTexts) {
  const Stream stream = cpu_stream();
  const Tensor roles = RolesCase::roles(stream);
  const Tensor labels = tensor_of(values_of(random_squares({kSlots, 3}, 4, stream)),
                                  {2, kSlots * 3 / 2}, DType::kF32, stream);
  for (std::int64_t i = 0; i < labels.elements(); ++i)
    labels.data<float>()[i] = std::min(labels.data<float>()[i], 1.0f);
  const auto of_formula = [&](const std::function<double(double, double)>& term) {
    return [&labels, term](const Values& x) { return label_losses(x, values_of(labels), term); };
  };
  expect_loss(
      random_tensor({kSlots, 3}, DType::kF32, 3, stream, 4),
      of_formula([](double x, double label) { return std::log(1 + std::exp(x)) - x * label; }),
      stream,
      [&](const Tensor& losses, const Tensor& x, float gradient_scale) {
        binary_cross_entropy(losses, x, labels, roles, gradient_scale, stream);
      },
      "binary cross entropy");
  expect_loss(
      random_tensor({kSlots, 3}, DType::kF32, 3, stream, 4),
      of_formula([](double x, double label) { return (x - label) * (x - label); }), stream,
      [&](const Tensor& losses, const Tensor& x, float gradient_scale) {
        mean_squared_error(losses, x, labels, roles, gradient_scale, stream);
      },
      "mean squared error");
}

TEST(LabelLosses, CertainLogitsKeepPrecision) {
  const Stream stream = cpu_stream();
  const Tensor roles = tensor_of({0}, {1, 1}, DType::kI32, stream);
  const Tensor logits = tensor_of({40, -40, -100, 0}, {1, 4}, DType::kF32, stream);
  const Tensor labels = tensor_of({1, 0, 1, 0}, {1, 4}, DType::kF32, stream);
  const Tensor losses = empty_f32({1}, stream);
  binary_cross_entropy(losses, logits, labels, roles, 4, stream);
  expect_close(losses, {(100 + std::log(2.0)) / 4}, 1e-6);
  const double tiny = std::exp(-40.0);
  const Values slopes = values_of(logits), wanted{-tiny, tiny, -1, 0.5};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(slopes[i] / wanted[i], 1, 1e-6) << i;
}

TEST(LabelLosses, RefuseOtherNumberOfLabels) {
  const Stream stream = cpu_stream();
  const Tensor roles = tensor_of({0, -1}, {1, 2}, DType::kI32, stream);
  const Tensor logits = random_tensor({2, 3}, DType::kF32, 1, stream),
               losses = empty_f32({2}, stream);
  const Tensor labels = random_tensor({1, 4}, DType::kF32, 2, stream);
  EXPECT_THROW(binary_cross_entropy(losses, logits, labels, roles, 1, stream), ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
