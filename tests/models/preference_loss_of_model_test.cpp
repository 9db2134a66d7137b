#include <gtest/gtest.h>

#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/network.h"
#include "tests/support/gradient_check.h"
#include "tests/support/pairs_batch.h"

namespace hybrid_trainer::testing {
namespace {

using Kind = kernels::PreferenceForm::Kind;

class ModelPreferenceLoss : public ::testing::TestWithParam<const char*> {
 protected:
  ModelPreferenceLoss() {
    ModelConfig config{.family = GetParam(),
                       .layers = 2,
                       .heads = 2,
                       .width = 16,
                       .context = 64,
                       .vocabulary = 61};
    if (config.family == "mamba2") {
      config.heads = ModelConfig{}.heads;
      config.state_space = {.heads = 2, .head_size = 16, .state_size = 8};
    }
    model_ = make_model(config, 3, stream_);
    randomize([this](const ParameterVisitor& visit) { model_->visit_parameters(visit); }, stream_);
  }
  double loss_of(const Batch& batch) {
    ForwardOnlyTape tape(Pass{.training = false});
    return kernels::wait_for_value(model_->forward(batch, 1, tape, stream_), stream_);
  }
  const Stream stream_ = test_stream();
  std::unique_ptr<LanguageModel> model_;
};

TEST_P(ModelPreferenceLoss, EqualsMeanOverEqualParts) {
  const Batch batch = pairs_batch(61, stream_);
  const double whole = loss_of(batch);
  EXPECT_EQ(model_->preference()->take(stream_).pairs, 4);
  double sum = 0;
  for (std::int64_t b = 0; b < 3; ++b) sum += loss_of(batch.examples(b, b + 1)) / 3;
  EXPECT_NEAR(sum, whole, 1e-6);
}

/// An answer's log-likelihood does not depend on the rest of its sequence.
TEST_P(ModelPreferenceLoss, AnswerIgnoresRestOfSequence) {
  const Batch batch = pairs_batch(61, stream_);
  loss_of(batch);
  const Tensor sums = model_->preference()->sums();
  const double rejected = sums.data<double>()[3];  // of the second pair: positions 33 to 50
  const auto alone = [&](const char* name) {
    const Tensor part = Tensor::empty({1, 17}, DType::kI32, MemoryKind::kData, stream_);
    std::copy_n(batch.at(name).data<std::int32_t>() + 33, 17, part.data<std::int32_t>());
    return part;
  };
  Batch text({{"tokens", alone("tokens")},
              {"targets", alone("targets")},
              {"positions", alone("positions")}},
             17);
  text.set_targets(1);
  EXPECT_NEAR(loss_of(text), -rejected, 1e-4);
}

using ModelPreferenceLossGradients = ModelPreferenceLoss;

TEST_P(ModelPreferenceLossGradients, MatchFiniteDifferences) {
  const Batch batch = pairs_batch(61, stream_);
  model_->preference()->set_form({Kind::kOrpo, 0.7f});
  Differentiable f;
  f.forward = [&](ActivationTape& tape) {
    return kernels::wait_for_value(model_->forward(batch, 1, tape, stream_), stream_);
  };
  f.backward = [&](ActivationTape& tape) {
    model_->backward(batch, tape, stream_);
    return Tensor{};
  };
  f.visit_parameters = [&](const ParameterVisitor& visit) { model_->visit_parameters(visit); };
  f.pass.training = false;
  expect_gradients_match(f, stream_, {.step = 2e-3, .relative = 5e-3});
}

INSTANTIATE_TEST_SUITE_P(Families, ModelPreferenceLossGradients,
                         ::testing::Values("gpt2", "llama"));
INSTANTIATE_TEST_SUITE_P(Families, ModelPreferenceLoss,
                         ::testing::Values("gpt2", "llama", "mamba2"));

}  // namespace
}  // namespace hybrid_trainer::testing
