// Training a long sequence in segments must give the loss and gradients of the entire sequence.
#include <gtest/gtest.h>

#include <map>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/segmented_pass.h"
#include "tests/support/gradient_check.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kWords = 61;

struct SegmentsCase {
  const char* name;
  ModelConfig (*make)();
  friend std::ostream& operator<<(std::ostream& out, const SegmentsCase& c) {
    return out << c.name;
  }
};

ModelConfig mamba() {
  ModelConfig config{.family = "mamba2", .layers = 2, .width = 24, .context = 1024};
  config.state_space = {.heads = 4, .head_size = 8, .groups = 2, .state_size = 8};
  return config;
}
ModelConfig delta_rule() {
  ModelConfig config{.family = "qwen3_5", .layers = 2, .heads = 2, .width = 24, .context = 1024};
  config.mixers = "d";
  config.state_space = {.heads = 4, .head_size = 8, .groups = 2, .state_size = 8};
  return config;
}
ModelConfig granite() {
  ModelConfig config{
      .family = "granitemoehybrid", .layers = 2, .heads = 2, .width = 24, .context = 1024};
  config.mixers = "m";
  config.state_space = {.heads = 4, .head_size = 8, .state_size = 8};
  config.residual_scale = 0.5;
  config.logit_scale = 0.5;
  return config;
}

/// Attention with a window, without rotary positions.
ModelConfig granite_windows() {
  ModelConfig config = granite();
  config.mixers = "ma";
  config.kv_heads = 1;
  config.rotary_share = 0;
  config.window = 40;
  return config;
}
/// Norms, rotary positions and gates, and a window that spans several segments.
ModelConfig gated_windows() {
  ModelConfig config = delta_rule();
  config.mixers = "da";
  config.kv_heads = 1;
  config.head_size = 16;
  config.window = 150;
  return config;
}
ModelConfig mistral() {
  return {.family = "mistral", .layers = 2, .heads = 2, .width = 24, .context = 1024, .window = 65};
}

class Segments : public ::testing::TestWithParam<SegmentsCase> {
 protected:
  Segments() : model_(make_model(config(), 1, stream_)) {
    randomize([this](const ParameterVisitor& visit) { model_->visit_parameters(visit); }, stream_);
  }
  static ModelConfig config() {
    ModelConfig config = GetParam().make();
    config.vocabulary = kWords;
    return config;
  }
  Batch batch(std::int64_t sequences, std::int64_t time) const {
    return token_batch(random_tokens({sequences, time}, kWords, 1, stream_),
                       random_tokens({sequences, time}, kWords, 2, stream_));
  }
  struct Outcome {
    double loss = 0;
    std::map<std::string, std::vector<double>> gradients;
  };
  Outcome outcome(const Batch& batch, std::int64_t segment, double recompute = 0) {
    Pass pass;
    pass.segment = segment;
    pass.recompute = recompute;
    return outcome(batch, pass);
  }
  Outcome outcome(const Batch& batch, const Pass& pass) {
    std::vector<Parameter*> parameters = trainable_parameters(*model_);
    ResidentGradients gradients;
    gradients.allocate(parameters, stream_);
    begin_gradients(parameters, gradients, model_->contributions(batch, pass.segment));
    PlainTape tape(pass);
    Outcome outcome;
    const Tensor loss = model_->forward(batch, 0.7f, tape, stream_);
    model_->backward(batch, tape, stream_);
    outcome.loss = kernels::wait_for_value(loss, stream_);
    EXPECT_TRUE(tape.empty());
    end_gradients(parameters, stream_);
    for (Parameter* parameter : parameters)
      outcome.gradients[parameter->name()] = values_of(parameter->gradient());
    for (Parameter* parameter : parameters) parameter->leave(gradients);
    return outcome;
  }
  /// Directional derivative: the sum of each gradient times its direction, cos(i).
  static double slope_by(const Outcome& of) {
    double sum = 0;
    for (const auto& [name, gradient] : of.gradients)
      for (std::size_t i = 0; i < gradient.size(); ++i)
        sum += gradient[i] * std::cos(static_cast<double>(i));
    return sum;
  }
  double slope_of_loss(const Batch& batch, const Pass& pass) {
    constexpr float kStep = 1e-4f;
    const auto moved = [&](float by) {
      for (Parameter* parameter : trainable_parameters(*model_))
        for (std::int64_t i = 0; i < parameter->elements(); ++i)
          master_of(*parameter).data<float>()[i] +=
              by * static_cast<float>(std::cos(static_cast<double>(i)));
      return 0.7 * outcome(batch, pass).loss;
    };
    const double above = moved(kStep), below = moved(-2 * kStep);
    moved(kStep);
    return (above - below) / (2 * static_cast<double>(kStep));
  }
  static void expect_alike(const Outcome& got, const Outcome& wanted) {
    EXPECT_NEAR(got.loss, wanted.loss, 1e-6 * wanted.loss);
    for (const auto& [name, gradient] : wanted.gradients)
      EXPECT_LT(relative_error(got.gradients.at(name), gradient), 2e-5) << name;
  }
  /// Expects three consecutive batches to be equivalent to one text.
  void expect_goes_on(std::int64_t time) {
    const Batch text = batch(2, 3 * time);
    const auto part = [&](std::int64_t i) {
      const auto of = [&](const char* name) {
        const Tensor some = Tensor::empty({2, time}, DType::kI32, MemoryKind::kData, stream_);
        for (std::int64_t row = 0; row < 2; ++row)
          copy(some.rows(row, row + 1).view({time}),
               text.at(name).rows(row, row + 1).view({3 * time}).rows(i * time, (i + 1) * time),
               stream_);
        return some;
      };
      Batch made = token_batch(of("tokens"), of("targets"));
      made.set_continues(i > 0);
      return made;
    };
    RowStates states;
    states.set_sequences(2);
    Pass pass;
    pass.states = &states;
    double sum = 0;
    for (std::int64_t i = 0; i < 3; ++i) {
      pass.segment = i == 1 ? 64 : 0;
      sum += outcome(part(i), pass).loss / 3;
      if (i < 2) states.commit();
    }
    EXPECT_NEAR(sum, outcome(text, 0).loss, 1e-6 * sum);
    const Outcome last = outcome(part(2), pass);
    const double slope = slope_by(last);
    EXPECT_NEAR(slope_of_loss(part(2), pass), slope, 3e-3 * std::abs(slope) + 3e-4);
  }

  const Stream stream_ = test_stream();
  std::unique_ptr<LanguageModel> model_;
};

TEST_P(Segments, LossAndGradientsMatchWholeText) {
  for (const std::int64_t sequences : {1, 2}) {
    const Batch whole = batch(sequences, 200);
    const Outcome wanted = outcome(whole, 0);
    for (const std::int64_t segment : {64, 100, 199}) {
      SCOPED_TRACE(concat(sequences, " sequences in segments of ", segment));
      expect_alike(outcome(whole, segment), wanted);
    }
    EXPECT_EQ(outcome(whole, 200).gradients, wanted.gradients);  // one segment
  }
}

TEST_P(Segments, RecomputationIsBitIdentical) {
  const Batch whole = batch(1, 150);
  const Outcome wanted = outcome(whole, 64);
  for (const double share : {0.4, 1.0})
    EXPECT_EQ(outcome(whole, 64, share).gradients, wanted.gradients) << share;
}

TEST_P(Segments, KeptSegmentsDoNotChangeResult) {
  const Batch whole = batch(2, 150);
  Pass pass;
  pass.segment = 40;
  const Outcome wanted = outcome(whole, pass);
  for (const std::int64_t kept : {1, 2, 4, 9}) {
    for (const bool may_wait : {false, true}) {
      pass.kept_segments = kept;
      pass.loss_may_wait = may_wait;
      const Outcome got = outcome(whole, pass);
      EXPECT_EQ(got.loss, wanted.loss) << kept << may_wait;
      EXPECT_EQ(got.gradients, wanted.gradients) << kept << may_wait;
    }
  }
}

/// The loss of a text in three batches equals the text's. Each batch's gradient is that of its own
/// loss with fixed initial states, compared with finite differences along one direction. Includes a
/// last segment or a batch with fewer tokens than a convolution looks back.
TEST_P(Segments, ContinueWithStatesOfPreviousBatch) {
  for (const std::int64_t time : {70, 65, 66, 2}) {
    SCOPED_TRACE(time);
    expect_goes_on(time);
  }
}

TEST_P(Segments, PackedDocumentsMatchWholePass) {
  const Batch tokens = batch(1, 150);
  std::vector<NamedTensor> tensors = tokens.tensors();
  const Tensor positions = Tensor::empty({1, 150}, DType::kI32, MemoryKind::kData, stream_);
  for (std::int32_t t = 0; t < 150; ++t)  // document ends around segment boundaries
    positions.data<std::int32_t>()[t] = t < 62 ? t : t < 128 ? t - 62 : t - 128;
  tensors.push_back({"positions", positions});
  const Batch packed(tensors, 150);
  expect_alike(outcome(packed, 64), outcome(packed, 0));
}

INSTANTIATE_TEST_SUITE_P(All, Segments,
                         ::testing::Values(SegmentsCase{"Mamba2", mamba},
                                           SegmentsCase{"DeltaRule", delta_rule},
                                           SegmentsCase{"Granite", granite},
                                           SegmentsCase{"GraniteWindows", granite_windows},
                                           SegmentsCase{"GatedWindows", gated_windows},
                                           SegmentsCase{"Mistral", mistral}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hybrid_trainer::testing
