#include "hybrid_trainer/nn/network.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/language_head.h"
#include "tests/support/gradient_check.h"
#include "tests/support/pairs_batch.h"

namespace hybrid_trainer::testing {
namespace {

using kernels::PreferenceForm;
using Form = PreferenceForm::Kind;

/// Mean loss of the pairs in double, and its gradients by x and by the table.
struct InDouble {
  double loss = 0;
  std::vector<double> dx, dtable;
};

InDouble in_double(const Batch& batch, const std::vector<double>& x,
                   const std::vector<double>& table, std::size_t width, std::size_t vocabulary,
                   const PreferenceForm& form, double cap) {
  const std::size_t rows = x.size() / width;
  const auto* const targets = batch.at("targets").data<std::int32_t>();
  const auto* const halves = batch.at("halves").data<std::int32_t>();
  std::vector<std::vector<double>> shares(rows);  // softmax
  std::vector<double> slopes(rows * (cap > 0 ? vocabulary : 0)), losses(rows);
  for (std::size_t n = 0; n < rows; ++n) {
    if (targets[n] == kNoTarget) continue;
    std::vector<double>& share = shares[n];
    share.resize(vocabulary);
    double sum = 0;
    for (std::size_t v = 0; v < vocabulary; ++v) {
      double logit = 0;
      for (std::size_t c = 0; c < width; ++c) logit += x[n * width + c] * table[v * width + c];
      if (cap > 0) {
        const double bent = std::tanh(logit / cap);
        slopes[n * vocabulary + v] = 1 - bent * bent;
        logit = cap * bent;
      }
      share[v] = std::exp(logit);
      sum += share[v];
    }
    for (double& one : share) one /= sum;
    losses[n] = -std::log(share[static_cast<std::size_t>(targets[n])]);
  }
  InDouble result{.dx = std::vector<double>(x.size()), .dtable = std::vector<double>(table.size())};
  std::vector<double> weights(rows);
  for (std::size_t b = 0; b < 3; ++b) {
    for (std::int32_t pair = 0; pair < 2; ++pair) {
      double sums[2] = {}, tokens[2] = {};
      for (std::size_t n = 50 * b; n < 50 * (b + 1); ++n) {
        const std::int32_t half = halves[n] - 2 * pair;
        if (half != 0 && half != 1) continue;
        sums[half] -= losses[n];
        tokens[half] += 1;
      }
      if (tokens[0] == 0) continue;
      const double beta = form.beta;
      const float* const reference = batch.at("references").data<float>() + 50 * b + 2 * pair;
      double weight[2];
      if (form.kind == Form::kDpo) {
        const double margin = beta * (sums[0] - reference[0] - (sums[1] - reference[1]));
        result.loss += std::log1p(std::exp(-margin)) / 4;
        weight[0] = beta / (1 + std::exp(margin));
        weight[1] = -weight[0];
      } else {
        const double m[2] = {sums[0] / tokens[0], sums[1] / tokens[1]};
        const double rest[2] = {1 - std::exp(m[0]), 1 - std::exp(m[1])};
        const double odds = m[0] - std::log(rest[0]) - (m[1] - std::log(rest[1]));
        const double slope = beta / (1 + std::exp(odds));
        result.loss += (-m[0] + beta * std::log1p(std::exp(-odds))) / 4;
        weight[0] = (1 + slope / rest[0]) / tokens[0];
        weight[1] = -slope / rest[1] / tokens[1];
      }
      for (std::size_t n = 50 * b; n < 50 * (b + 1); ++n) {
        const std::int32_t half = halves[n] - 2 * pair;
        if (half == 0 || half == 1) weights[n] = weight[half] / 4;
      }
    }
  }
  for (std::size_t n = 0; n < rows; ++n) {
    if (shares[n].empty()) continue;
    for (std::size_t v = 0; v < vocabulary; ++v) {
      double d = shares[n][v] - (static_cast<std::int32_t>(v) == targets[n] ? 1 : 0);
      d *= weights[n] * (cap > 0 ? slopes[n * vocabulary + v] : 1);
      for (std::size_t c = 0; c < width; ++c) {
        result.dx[n * width + c] += d * table[v * width + c];
        result.dtable[v * width + c] += d * x[n * width + c];
      }
    }
  }
  return result;
}

/// Compares loss and gradients of a head with those in double precision.
void expect_like_double(std::int64_t vocabulary, std::int64_t padded, const PreferenceForm& form,
                        float cap) {
  const Stream stream = test_stream();
  constexpr std::int64_t kWidth = 5;
  Parameter table("wte.weight", {padded, kWidth}, Role::kEmbedding, stream);
  copy(master_of(table), normal_tensor({padded, kWidth}, 5, stream, 0.7f), stream);
  StepGradients step([&](const ParameterVisitor& visit) { visit(table); }, stream);
  LanguageHead head(table, vocabulary, cap);
  const Batch batch = pairs_batch(vocabulary, stream);
  const Tensor x = normal_tensor({150, kWidth}, 7, stream);
  const InDouble wanted = in_double(batch, values_of(x), values_of(master_of(table)), kWidth,
                                    static_cast<std::size_t>(vocabulary), form, cap);
  PreferenceLoss preference;
  preference.set_form(form);
  PlainTape tape{Pass{}};
  const double loss =
      kernels::wait_for_value(head.preference(x, batch, preference, 1.0f, tape, stream), stream);
  const Tensor dx = head.backward(tape, stream);
  EXPECT_NEAR(loss, wanted.loss, 1e-5 * (1 + wanted.loss));
  EXPECT_LT(relative_error(values_of(dx), wanted.dx), 1e-5);
  EXPECT_LT(relative_error(values_of(table.gradient()), wanted.dtable), 1e-5);
}

TEST(HeadPreferenceLoss, LossAndGradientsMatchDoublePrecision) {
  for (const PreferenceForm& form : {PreferenceForm{Form::kDpo, 0.1f},
                                     {Form::kDpo, 1.0f},
                                     {Form::kOrpo, 0.1f},
                                     {Form::kOrpo, 1.0f}}) {
    for (const float cap : {0.0f, 2.0f}) expect_like_double(251, 256, form, cap);
  }
}

/// The logits of each chunk are then computed twice.
TEST(HeadPreferenceLoss, SeveralChunksMatchDoublePrecision) {
  expect_like_double(262100, 262144, {Form::kDpo, 0.5f}, 0);
  expect_like_double(262100, 262144, {Form::kOrpo, 0.5f}, 2);
}

}  // namespace
}  // namespace hybrid_trainer::testing
