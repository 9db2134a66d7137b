#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/text_head.h"
#include "tests/support/gradient_check.h"
#include "tests/support/texts_batch.h"

// Text-level models (model.pooling).
namespace hybrid_trainer::testing {
namespace {

using TextKind = TextLoss::Kind;

constexpr std::int64_t kTextVocabulary = 61;

ModelConfig config_of(const std::string& family, const std::string& pooling, std::int64_t outputs) {
  ModelConfig config{.family = family,
                     .layers = 2,
                     .heads = 2,
                     .width = 16,
                     .context = 40,
                     .vocabulary = kTextVocabulary};
  config.language_head = false;
  config.pooling = pooling;
  config.labels.resize(static_cast<std::size_t>(outputs));
  for (std::int64_t i = 0; i < outputs; ++i)
    config.labels[static_cast<std::size_t>(i)].name = concat("class", i);
  if (family != "gpt2" && family != "llama") config.bidirectional = true;
  if (family == "bert") config.token_types = 2;
  return config;
}

class TextModel : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<LanguageModel> made(const TextLoss& loss, const std::string& pooling) const {
    auto model = make_model(config_of(GetParam(), pooling, outputs_for(loss.kind)), 3, stream_);
    randomize([&](const ParameterVisitor& visit) { model->visit_parameters(visit); }, stream_);
    model->text_head()->set_loss(loss);
    return model;
  }
  Batch batch_of(TextKind kind) const {
    return texts_batch(kind, kTextVocabulary, stream_, std::string(GetParam()) == "bert");
  }
  const Stream stream_ = test_stream();
};

using TextModelGradients = TextModel;

TEST_P(TextModelGradients, MatchFiniteDifferences) {
  for (const auto& [loss, pooling] : std::vector<std::pair<TextLoss, std::string>>{
           {{.kind = TextKind::kClass}, "mean"},
           {{.kind = TextKind::kRegression}, "last"},
           {{.kind = TextKind::kContrastive, .scale = 12, .symmetric = true, .dimensions = {16, 5}},
            "cls"}}) {
    const auto model = made(loss, pooling);
    const Batch batch = batch_of(loss.kind);
    Differentiable f;
    f.forward = [&](ActivationTape& tape) {
      return kernels::wait_for_value(model->forward(batch, 1, tape, stream_), stream_);
    };
    f.backward = [&](ActivationTape& tape) {
      model->backward(batch, tape, stream_);
      return Tensor{};
    };
    f.visit_parameters = [&](const ParameterVisitor& visit) { model->visit_parameters(visit); };
    f.pass.training = false;
    SCOPED_TRACE(concat(GetParam(), ", ", name_of(loss)));
    expect_gradients_match(f, stream_, {.step = 4e-3, .relative = 2e-2});
  }
}

TEST_P(TextModel, OutputsOfATextIgnoreOthersOfItsSequence) {
  for (const char* pooling : {"cls", "mean", "last"}) {
    for (const TextKind kind : {TextKind::kClass, TextKind::kContrastive}) {
      const auto model = made({.kind = kind}, pooling);
      const Batch batch = batch_of(kind);
      const Pass pass{.training = false};
      const Tensor together = model->text_outputs(batch, pass, stream_);
      const std::int64_t outputs = together.size(1);
      EXPECT_EQ(together.shape(), (Shape{10, kind == TextKind::kClass ? 3 : 16}));
      for (std::int64_t slot = 0; slot < 10; ++slot) {
        const auto* const ends = batch.at("ends").data<std::int32_t>();
        if (ends[slot] == 0) continue;
        const std::int64_t begin = slot % 5 == 0 ? 0 : ends[slot - 1], size = ends[slot] - begin;
        const Batch alone =
            texts_batch(kind, kTextVocabulary, stream_, batch.find("types") != nullptr)
                .examples(0, 1);
        for (const char* name : {"tokens", "positions", "types"}) {
          const Tensor* const all = batch.find(name);
          if (all == nullptr) continue;
          auto* const to = alone.at(name).data<std::int32_t>();
          std::fill_n(to, 40, 0);
          std::copy_n(all->data<std::int32_t>() + slot / 5 * 40 + begin, size, to);
        }
        for (std::int64_t t = 0; t < 40; ++t)
          alone.at("is_token").data<std::int32_t>()[t] = t < size ? 1 : 0;
        std::fill_n(alone.at("ends").data<std::int32_t>(), 5, 0);
        std::fill_n(alone.at("roles").data<std::int32_t>(), 5, -1);
        alone.at("ends").data<std::int32_t>()[0] = static_cast<std::int32_t>(size);
        alone.at("roles").data<std::int32_t>()[0] = 0;
        const Tensor wanted = model->text_outputs(alone, pass, stream_);
        for (std::int64_t c = 0; c < outputs; ++c)
          EXPECT_NEAR(together.data<float>()[slot * outputs + c], wanted.data<float>()[c], 5e-6)
              << pooling << ", slot " << slot;
      }
    }
  }
}

TEST_P(TextModel, HasNoLanguageHead) {
  const auto model = made({.kind = TextKind::kClass}, "mean");
  bool has_classes = false;
  std::int64_t elements = 0;
  model->visit_parameters([&](Parameter& parameter) {
    EXPECT_FALSE(parameter.name().starts_with("lm_head")) << parameter.name();
    has_classes = has_classes || model->text_head()->is_last(parameter);
    elements += parameter.elements();
  });
  EXPECT_TRUE(has_classes);
  const Tensor tokens = random_tokens({1, 4}, kTextVocabulary, 3, stream_);
  EXPECT_THROW(model->logits(tokens, Pass{.training = false}, stream_), Error);
  EXPECT_EQ(model->preference(), nullptr);

  const auto embedding = made({.kind = TextKind::kContrastive}, "mean");
  embedding->visit_parameters([&](Parameter& parameter) {
    EXPECT_FALSE(embedding->text_head()->owns(parameter)) << parameter.name();
    elements -= parameter.elements();
  });
  EXPECT_GT(elements, 0);
}

TEST_P(TextModel, RecomputedGradientsHaveTheSameBits) {
  const TextLoss loss{.kind = TextKind::kContrastive};
  const auto model = made(loss, "mean");
  const Batch batch = batch_of(loss.kind);
  const auto gradients = [&](double recompute) {
    const StepGradients step([&](const ParameterVisitor& visit) { model->visit_parameters(visit); },
                             stream_);
    PlainTape tape(Pass{.recompute = recompute});
    model->forward(batch, 1, tape, stream_);
    model->backward(batch, tape, stream_);
    EXPECT_TRUE(tape.empty());
    std::vector<std::vector<double>> values;
    model->visit_parameters(
        [&](Parameter& parameter) { values.push_back(values_of(parameter.gradient())); });
    return values;
  };
  EXPECT_EQ(gradients(1), gradients(0));
}

// The random distilbert has nearly equal vectors, and gradients below the noise of f32.
INSTANTIATE_TEST_SUITE_P(Families, TextModelGradients,
                         ::testing::Values("gpt2", "llama", "bert", "modernbert"));
INSTANTIATE_TEST_SUITE_P(Families, TextModel,
                         ::testing::Values("gpt2", "llama", "bert", "distilbert", "modernbert"));

}  // namespace
}  // namespace hybrid_trainer::testing
