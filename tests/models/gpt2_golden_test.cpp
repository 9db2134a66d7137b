#include <gtest/gtest.h>
#include "hybrid_trainer/kernels/reductions.h"

#include "hybrid_trainer/models/decoder.h"
#include "src/optim/make_optimizer.h"
#include "tests/models/golden_gpt2.h"

// Compares GPT-2 with PyTorch's results (tests/golden/README.md).
namespace hybrid_trainer::testing {
namespace {

constexpr double kTolerance = 1e-4;

class Gpt2Golden : public ::testing::TestWithParam<const char*> {
 protected:
  double step() {
    PlainTape tape{Pass{}};
    gradients_.begin();
    const double loss =
        kernels::wait_for_value(model_->forward(golden_.batch(), 1, tape, stream_), stream_);
    model_->backward(golden_.batch(), tape, stream_);
    EXPECT_TRUE(tape.empty());
    return loss;
  }
  const Stream stream_ = test_stream();
  const GoldenGpt2 golden_{GetParam(), stream_};
  const std::unique_ptr<LanguageModel> model_ = golden_.make_model();
  StepGradients gradients_{
      [this](const ParameterVisitor& visit) { model_->visit_parameters(visit); }, stream_};
};

TEST_P(Gpt2Golden, LossMatches) {
  const double wanted = golden_.load("loss").data<float>()[0];
  EXPECT_NEAR(step(), wanted, kTolerance * wanted);
}

TEST_P(Gpt2Golden, LogitsMatch) {
  const std::vector<double> padded =
      values_of(model_->logits(golden_.batch().at("tokens"), Pass{.training = false}, stream_));
  const Tensor wanted = golden_.load("logits");
  const auto vocabulary = static_cast<std::size_t>(golden_.config().vocabulary);
  const auto columns = static_cast<std::size_t>(padded_vocabulary(golden_.config().vocabulary));
  std::vector<double> logits;
  for (std::size_t row = 0; row < padded.size() / columns; ++row) {
    const auto begin = padded.begin() + static_cast<std::ptrdiff_t>(row * columns);
    logits.insert(logits.end(), begin, begin + static_cast<std::ptrdiff_t>(vocabulary));
  }
  EXPECT_LT(relative_error(logits, values_of(wanted)), kTolerance);
}

TEST_P(Gpt2Golden, EveryGradientMatches) {
  step();
  int tensors = 0;
  model_->visit_parameters([&](Parameter& parameter) {
    EXPECT_LT(relative_error(values_of(parameter.gradient()), golden_.matching(parameter, "grad.")),
              kTolerance)
        << parameter.name();
    ++tensors;
  });
  EXPECT_EQ(tensors, 4 + 12 * golden_.config().layers);
}

/// Removes the middle third: the keys' bias has no effect, so its gradient is rounding error.
std::vector<double> without_keys_bias(std::vector<double> values, const Parameter& parameter) {
  if (!parameter.name().ends_with("attn.c_attn.bias")) return values;
  const auto third = static_cast<std::ptrdiff_t>(values.size() / 3);
  values.erase(values.begin() + third, values.begin() + 2 * third);
  return values;
}

TEST_P(Gpt2Golden, ThreeAdamWStepsMatch) {
  OptimizerConfig config;
  config.betas = {0.9, 0.95};
  std::vector<Parameter*> parameters;
  model_->visit_parameters([&](Parameter& parameter) { parameters.push_back(&parameter); });
  const auto optimizer = make_optimizer(config, parameters, stream_);
  const Tensor losses = golden_.load("adamw3.losses");
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(step(), losses.data<float>()[i], kTolerance * losses.data<float>()[i]);
    optimizer->step(1e-3f, 1, stream_);
  }
  for (const Parameter* parameter : parameters) {
    const auto wanted = without_keys_bias(golden_.matching(*parameter, "adamw3."), *parameter);
    EXPECT_LT(
        relative_error(without_keys_bias(values_of(master_of(*parameter)), *parameter), wanted),
        kTolerance)
        << parameter->name();
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Gpt2Golden, ::testing::Values("gpt2_a", "gpt2_b"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hybrid_trainer::testing
