#include "hybrid_trainer/kernels/loss.h"

#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "tests/kernels/kernel_case.h"
#include "tests/kernels/losses/pairs_case.h"

namespace hybrid_trainer::kernels {
namespace {

using Kind = PreferenceForm::Kind;

const std::vector<PreferenceForm>& forms() {
  static const std::vector<PreferenceForm> all{
      {Kind::kDpo, 0.1f}, {Kind::kDpo, 2.0f}, {Kind::kOrpo, 0.1f}, {Kind::kOrpo, 1.5f}};
  return all;
}

double total_of(const PairsCase& pairs, const PreferenceForm& form, const Values& losses) {
  double total = 0;
  for (const PairOfCase& pair : pairs.outcomes(form, losses)) total += pair.loss;
  return total;
}

TEST(Preference, LossAndRewardsMatchReference) {
  const Stream stream = cpu_stream();
  const PairsCase pairs(stream);
  for (const PreferenceForm& form : forms()) {
    const PreferenceTensors t = pairs.tensors();
    preference_loss(t, form, stream);
    const std::vector<PairOfCase> wanted = pairs.outcomes(form, values_of(t.losses));
    double chosen = 0, rejected = 0, right = 0;
    std::size_t next = 0;
    for (std::int64_t b = 0; b < pairs.sequences; ++b) {
      for (std::int64_t i = 0; i < pairs.length; ++i) {
        const float found = t.pair_losses.data<float>()[b * pairs.length + i];
        if (i >= pairs.pairs_of(b)) {
          EXPECT_EQ(found, 0);
          continue;
        }
        const PairOfCase& one = wanted[next++];
        EXPECT_NEAR(found, one.loss, 1e-6 * (1 + std::abs(one.loss)));
        const double* const sums = t.sums.data<double>() + b * pairs.length + 2 * i;
        EXPECT_NEAR(sums[0], one.chosen_sum, 1e-6 * std::abs(one.chosen_sum));
        EXPECT_NEAR(sums[1], one.rejected_sum, 1e-6 * std::abs(one.rejected_sum));
        chosen += one.chosen_reward;
        rejected += one.rejected_reward;
        right += one.chosen_reward > one.rejected_reward ? 1 : 0;
      }
    }
    const double* const measures = t.measures.data<double>();
    EXPECT_NEAR(measures[0], chosen, 1e-5);
    EXPECT_NEAR(measures[1], rejected, 1e-5);
    EXPECT_EQ(measures[2], right);
    EXPECT_EQ(measures[3], static_cast<double>(wanted.size()));
    preference_loss(t, form, stream);
    EXPECT_EQ(measures[3], 2 * static_cast<double>(wanted.size())) << "measures are accumulated";
  }
}

TEST(Preference, WeightsMatchFiniteDifferences) {
  const Stream stream = cpu_stream();
  const PairsCase pairs(stream);
  for (const PreferenceForm& form : forms()) {
    const PreferenceTensors t = pairs.tensors();
    preference_loss(t, form, stream);
    Values losses = values_of(t.losses);
    constexpr double kStep = 1e-5;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const double at = losses[i];
      losses[i] = at + kStep;
      const double above = total_of(pairs, form, losses);
      losses[i] = at - kStep;
      const double below = total_of(pairs, form, losses);
      losses[i] = at;
      EXPECT_NEAR(t.weights.data<float>()[i], (above - below) / (2 * kStep), 1e-6) << i;
    }
  }
}

TEST(Preference, CertainOrImpossibleAnswersStayFinite) {
  const Stream stream = cpu_stream();
  for (const PreferenceForm& form : forms()) {
    for (const double loss : {0.0, 1e-30, 400.0}) {
      const PairsCase pairs(stream, loss);
      const PreferenceTensors t = pairs.tensors();
      preference_loss(t, form, stream);
      for (const Tensor& tensor : {t.pair_losses, t.weights})
        for (const double value : values_of(tensor)) EXPECT_TRUE(std::isfinite(value)) << loss;
    }
  }
}

TEST(Preference, MeasuresDoNotChangeWeights) {
  const Stream stream = cpu_stream();
  const PairsCase pairs(stream);
  PreferenceTensors with = pairs.tensors(), without = pairs.tensors();
  without.measures = {};
  preference_loss(with, {}, stream);
  preference_loss(without, {}, stream);
  EXPECT_EQ(values_of(with.weights), values_of(without.weights));
  PreferenceTensors other = pairs.tensors();
  other.references = other.references.rows(0, 1);
  EXPECT_THROW(preference_loss(other, {}, stream), ShapeMismatch);
}

TEST(ScaleRows, MultipliesEachRow) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor x = random_tensor({5, 37}, dtype, 1, stream);
    const Tensor factors = tensor_of({1, -2, 0, 0.5, 4}, {5}, DType::kF32, stream);
    Values wanted = values_of(x);
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] *= values_of(factors)[i / 37];
    scale_rows(x, factors, stream);
    expect_close(x, wanted, 0);
    EXPECT_THROW(scale_rows(x, factors.rows(0, 4), stream), ShapeMismatch);
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
