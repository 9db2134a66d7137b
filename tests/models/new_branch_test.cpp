// Shows how to add a family with a new branch: the first half of this file, the branch
// (decaying_sum.h), and one registry entry.
#include <gtest/gtest.h>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/models/config_keys.h"
#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/model_files/hugging_face/folder_weights.h"
#include "tests/models/decaying_sum.h"
#include "tests/support/gradient_check.h"
#include "tests/support/layers.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer::testing {
namespace {

/// A model with sums ('s') or attention ('a') in each layer, and no table of positions.
std::unique_ptr<LanguageModel> make(const ModelConfig& config, std::uint64_t seed,
                                    const Stream& stream) {
  LayerSpec attention = plain_layer(config.width, 2, 3 * config.width), sums = attention;
  sums[0] = {.name = {"sum", "mixer"},
             .norm = {"ln_1", "mixer_norm"},
             .make = branch_of<DecayingSum>({.width = config.width, .intermediate_size = 24})};
  const DecoderSpec spec{.residual = {.width = config.width},
                         .kinds = {{'s', sums}, {'a', attention}},
                         .pattern = config.window_layers,
                         .deviations = default_deviations(config),
                         .files = {.layers = "layers"}};
  return std::make_unique<Decoder>(config, spec, seed, stream);
}

void summing_keys(ConfigKeys& keys, ModelConfig& model) {
  keys.member("num_hidden_layers", model.layers);
  keys.member("hidden_size", model.width);
  keys.member("max_position_embeddings", model.context);
  keys.member("vocab_size", model.vocabulary);
  keys.fixed("pattern", {std::string("sa")});
}

ModelFamily summing_family() {
  return {.name = "summing",
          .title = "Summing",
          .keys = {"window_layers"},
          .collect_problems =
              [](const ModelConfig& config, std::vector<std::string>& problems) {
                collect_pattern_problems("model.window_layers", config.window_layers,
                                         {{'s', "sums"}, {'a', "attends"}}, config.layers,
                                         problems);
              },
          .resolved =
              [](ModelConfig config) {
                if (config.window_layers.empty()) config.window_layers = "sa";
                return config;
              },
          .make = make,
          .presets = {},
          .hugging_face = {.model_type = "summing",
                           .architecture = "SummingForCausalLM",
                           .prefix = "model.",
                           .keys = summing_keys,
                           .tied_head = "wte.weight"}};
}

const ModelRegistry& registry() {
  static const ModelRegistry families{summing_family()};
  return families;
}

class NewBranch : public ::testing::Test {
 protected:
  std::unique_ptr<LanguageModel> make_summing(std::uint64_t seed = 1) {
    return make_model(config_, seed, stream_, registry());
  }
  double step(LanguageModel& model, const Pass& pass) {
    PlainTape tape(pass);
    const double loss = kernels::wait_for_value(model.forward(batch_, 1, tape, stream_), stream_);
    model.backward(batch_, tape, stream_);
    EXPECT_TRUE(tape.empty());
    return loss;
  }
  std::vector<std::vector<double>> gradients(LanguageModel& model) {
    std::vector<std::vector<double>> all;
    model.visit_parameters([&](Parameter& p) { all.push_back(values_of(p.gradient())); });
    return all;
  }
  static auto visitor_of(LanguageModel& model) {
    return [&model](const ParameterVisitor& visit) { model.visit_parameters(visit); };
  }
  const Stream stream_ = test_stream();
  const ModelConfig config_{.family = "summing",
                            .layers = 3,
                            .width = 16,
                            .context = 12,
                            .vocabulary = 50,
                            .window_layers = "sa"};
  const Batch batch_ =
      token_batch(random_tokens({4, 12}, 50, 1, stream_), random_tokens({4, 12}, 50, 2, stream_));
};

/// Two sequences, the first of which has two documents.
TEST_F(NewBranch, GradientsMatchFiniteDifferences) {
  ResidualBlock block("h.0", {.width = 12},
                      {{.name = "sum",
                        .norm = "ln_1",
                        .make = branch_of<DecayingSum>({.width = 12, .intermediate_size = 8})}},
                      1, stream_);
  Differentiable f;
  f.x = normal_tensor({2, 5, 12}, 3, stream_);
  f.forward = [&](ActivationTape& tape) {
    return projected(block.forward(f.x, tape, stream_), stream_);
  };
  f.backward = [&](ActivationTape& tape) {
    return block.backward(projection_gradient(f.x.shape(), stream_), tape, stream_);
  };
  f.visit_parameters = [&](const ParameterVisitor& visit) { block.visit_parameters(visit); };
  f.pass.positions = Tensor::zeros({2, 5}, DType::kI32, MemoryKind::kData, stream_);
  for (std::int32_t i = 0; i < 10; ++i)
    f.pass.positions.data<std::int32_t>()[i] = i < 3 ? i : i < 5 ? i - 3 : i - 5;
  randomize(f.visit_parameters, stream_);
  expect_gradients_match(f, stream_, {.relative = 1e-3});
}

TEST_F(NewBranch, TrainingLowersLoss) {
  const auto model = make_summing();
  StepGradients steps(visitor_of(*model), stream_);
  double first = 0, last = 0;
  for (int i = 0; i < 60; ++i) {
    steps.begin();
    last = step(*model, {});
    if (i == 0) first = last;
    model->visit_parameters([](Parameter& parameter) {
      float* const w = master_of(parameter).data<float>();
      for (std::int64_t k = 0; k < parameter.elements(); ++k)
        w[k] -= 0.5f * parameter.gradient().data<float>()[k];
    });
  }
  EXPECT_LT(last, 0.7 * first);
}

TEST_F(NewBranch, RecomputationIsBitIdentical) {
  const auto model = make_summing();
  StepGradients steps(visitor_of(*model), stream_);
  step(*model, {});
  const auto wanted = gradients(*model);
  for (const double share : {0.2, 0.6, 1.0}) {
    steps.begin();
    step(*model, {.recompute = share});
    EXPECT_EQ(gradients(*model), wanted) << share;
  }
}

TEST_F(NewBranch, KeepsDeclaredActivations) {
  expect_kept({.width = 16},
              {{.name = "sum",
                .norm = "ln_1",
                .make = branch_of<DecayingSum>({.width = 16, .intermediate_size = 24})}},
              stream_);
}

/// The family's layers declare their work.
TEST_F(NewBranch, IsCountedInStepFlops) {
  const auto model = make_summing();
  const double two = 2 * 16 * 24, attention = 4 * 16 * 16, feed_forward = 2 * 3 * 16 * 16;
  EXPECT_DOUBLE_EQ(model->flops_of({4, 12}, 48),
                   48 * (6 * (50 * 16 + 2 * two + attention + 3 * feed_forward) + 12 * 6 * 16));
  EXPECT_DOUBLE_EQ(model->recomputed_flops_of({4, 12}, 1),
                   48 * (2 * (2 * two + attention + 3 * feed_forward) + 4 * 6 * 16));
  EXPECT_EQ(model->parts(), (std::vector<std::string>{"w*e.*", "h.0.*", "h.1.*", "h.2.*"}));
}

TEST_F(NewBranch, DecodingRestartsWhenItCannotRewind) {
  const auto model = make_summing();
  const Tensor tokens = random_tokens({1, 12}, 50, 5, stream_);
  const Tensor wanted = model->logits(tokens, {.training = false}, stream_);
  CachedDecoder decoder(*model, DType::kF32, stream_);
  const auto expect_logits = [&](std::int64_t length) {
    decoder.see({tokens.data<std::int32_t>(), static_cast<std::size_t>(length)});
    for (std::size_t v = 0; v < 50; ++v)
      EXPECT_NEAR(decoder.logits()[v], wanted.rows(length - 1, length).data<float>()[v], 1e-5);
  };
  for (std::int64_t t = 1; t <= 12; ++t) expect_logits(t);
  for (const std::int64_t shorter : {12, 7, 8, 3}) expect_logits(shorter);
  EXPECT_EQ(decoder.draft_capacity(3, 0), 0);
  const auto state = model->make_decode_state({.texts = 1, .tokens = 4}, DType::kF32, stream_);
  EXPECT_FALSE(state->can_rewind());
  state->advance(3);
  EXPECT_FALSE(state->can_keep());
  EXPECT_THROW(state->rewind(2, stream_), Error);
  state->restart();
}

TEST_F(NewBranch, BatchDecodingMatchesFullPass) {
  const auto model = make_summing();
  const Tensor tokens = random_tokens({3, 9}, 50, 5, stream_);
  const Tensor wanted = model->logits(tokens, {.training = false}, stream_);
  BatchDecoder decoder(*model, {.texts = 3, .tokens = 9}, DType::kF32, stream_);
  const auto row = [&](std::int64_t i) { return tokens.data<std::int32_t>() + 9 * i; };
  for (std::int64_t i = 0; i < 3; ++i) decoder.begin(i, {row(i), static_cast<std::size_t>(2 + i)});
  for (std::int64_t t = 0; t < 5; ++t) {
    std::vector<BatchDecoder::Next> next;
    for (std::int64_t i = 0; i < 3; ++i) next.push_back({i, row(i)[2 + i + t]});
    decoder.add(next);
  }
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::int64_t last = 9 * i + 6 + i;
    for (std::size_t v = 0; v < 50; ++v)
      EXPECT_NEAR(decoder.logits(i)[v], wanted.rows(last, last + 1).data<float>()[v], 1e-5);
  }
}

TEST_F(NewBranch, FolderRoundTripIsBitIdentical) {
  const TemporaryFolder folder;
  const std::string path = folder / "summing";
  const auto model = make_summing();
  export_hugging_face(*model, nullptr, path, stream_, registry());
  const HuggingFaceWeights files(path);
  for (const char* name : {"mixer.in_proj.weight", "mixer.out_proj.weight", "mixer.decay",
                           "mixer_norm.weight", "mlp.c_fc.weight"})
    EXPECT_TRUE(files.contains(concat("model.layers.2.", name))) << name;
  const auto back =
      make_model(read_hugging_face_model_config(path, 0, registry()), 2, stream_, registry());
  read_hugging_face_weights(path, *back, stream_, registry());
  std::vector<Tensor> left, right;
  model->visit_parameters([&](Parameter& p) { left.push_back(master_of(p)); });
  back->visit_parameters([&](Parameter& p) { right.push_back(master_of(p)); });
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(same_bits(left[i], right[i])) << i;
}

TEST_F(NewBranch, RejectsInvalidPatternInOneLine) {
  const auto problems_of = [&](const char* pattern) {
    ModelConfig config = config_;
    config.window_layers = pattern;
    std::vector<std::string> problems;
    collect_model_problems(config, problems, registry());
    return problems;
  };
  EXPECT_TRUE(problems_of("sas").empty());
  EXPECT_TRUE(problems_of("sa").empty()) << "partially repeated";
  EXPECT_EQ(
      problems_of("sasa"),
      std::vector<std::string>{"model.window_layers: got sasa, 4 letters for 3 layers; want "
                               "at most one letter per layer; a shorter pattern is repeated"});
  EXPECT_EQ(problems_of("sw"),
            std::vector<std::string>{
                "model.window_layers: got sw, want letters s (sums) and a (attends)"});
}

}  // namespace
}  // namespace hybrid_trainer::testing
