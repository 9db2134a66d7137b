// Shows how to add a family: the first half of this file, and one registry entry.
#include <gtest/gtest.h>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/generation/text_generation.h"
#include "hybrid_trainer/models/config_keys.h"
#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/attention.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "src/run/run_files.h"
#include "tests/support/model_folders.h"
#include "tests/support/parameters.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

/// Differences from GPT-2: no biases, an untied head, always two wide heads, a different epsilon,
/// branches in a different order, and only a feed-forward branch in every second layer.
std::unique_ptr<LanguageModel> make(const ModelConfig& config, std::uint64_t seed,
                                    const Stream& stream) {
  const Attention::Spec attention{
      .width = config.width, .heads = 2, .head_size = 24, .biases = false, .output_bias = false};
  const FeedForward::Spec feed_forward{
      .width = config.width, .intermediate_size = 3 * config.width, .biases = false};
  const BranchSpec first{
      .name = "mlp", .norm = "norm", .make = branch_of<FeedForward>(feed_forward)},
      second{.name = "attn", .norm = "other_norm", .make = branch_of<Attention>(attention)};
  const DecoderSpec spec{
      .residual = {.width = config.width, .norm = {.epsilon = 1e-3f}},
      .kinds = {{'b', {first, second}}, {'f', {first}}},
      .pattern = "bf",
      .positions = config.context,
      .tied_head = false,
      .deviations = {.embedding = 0.02, .matrix = 0.1, .projection = 0.05},
      .files = {.layers = "twin.layers", .tokens = "twin.tokens", .final_norm = "twin.norm"}};
  return std::make_unique<Decoder>(config, spec, seed, stream);
}

void twin_keys(ConfigKeys& keys, ModelConfig& model) {
  keys.member("num_hidden_layers", model.layers);
  keys.member("hidden_size", model.width);
  keys.member("max_position_embeddings", model.context);
  keys.member("vocab_size", model.vocabulary);
  keys.fixed("use_twin_branches", {true});
}

ModelFamily twin_family() {
  return {.name = "twin",
          .title = "Twin",
          .keys = {},
          .collect_problems = [](const ModelConfig&, std::vector<std::string>&) {},
          .make = make,
          .presets = {{.name = "twin-small",
                       .model = {.layers = 2, .width = 32, .context = 16},
                       .batch_size = 4,
                       .sequence_length = 16,
                       .optimizer = "muon",
                       .learning_rate = 1e-2}},
          .hugging_face = {.model_type = "twin",
                           .architecture = "TwinForCausalLM",
                           .prefix = "model.",
                           .keys = twin_keys,
                           .tied_head = ""}};
}

const ModelRegistry& registry() {
  static const ModelRegistry families{model_families().front(), twin_family()};
  return families;
}

class SecondFamily : public ::testing::Test {
 protected:
  SecondFamily() { config_.model.vocabulary = 50; }
  const Stream stream_{MemoryPool::create("device")};
  HybridTrainerConfig config_ = preset_config("twin-small", registry());
  Batch batch_ = token_batch(testing::random_tokens({4, 16}, 50, 1, stream_),
                             testing::random_tokens({4, 16}, 50, 2, stream_));
};

TEST_F(SecondFamily, IsKnownOnlyThroughRegistry) {
  EXPECT_EQ(config_.model.family, "twin");
  EXPECT_TRUE(config_.problems(registry()).empty());
  EXPECT_EQ(config_.problems().size(), 1u);
  try {
    make_model({.family = "gtp2", .vocabulary = 50}, 0, stream_);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean gpt2?"), std::string::npos)
        << error.what();
  }
}

TEST_F(SecondFamily, RejectsKeysOfOtherFamilies) {
  config_.model.heads = 4;
  config_.model.dropout = 0.1;
  config_.model.initializer_range = 0.5;
  EXPECT_EQ(config_.problems(registry()),
            (std::vector<std::string>{
                "model.heads: got 4, but the family twin has no such key; leave it out",
                "model.dropout: got 0.1, but the family twin has no such key; leave it out",
                "model.initializer_range: got 0.5, but the family twin has no such key; leave it "
                "out"}));
}

TEST_F(SecondFamily, TrainsThroughAllPhases) {
  HybridTrainerConfig config = config_;
  config.model = {};  // only the model's creator uses it, not the trainer
  config.training.steps = 60;
  config.phases.warmup_steps = 10;
  config.phases.full_steps = 6;
  config.phases.skip_backward.trial_share = 1;
  const auto model = make_model(config_.model, 1, stream_, registry());
  HybridTrainer trainer(*model, config, stream_);
  const double first = trainer.step(batch_).loss;
  double last = first;
  while (trainer.steps_done() < 60) last = trainer.step(batch_).loss;
  EXPECT_LT(last, 0.5 * first);
  EXPECT_GT(trainer.machine().statistics().of(Phase::kPredict).steps, 0);
}

TEST_F(SecondFamily, CountsParametersOfOwnHead) {
  const auto model = make_model(config_.model, 1, stream_, registry());
  const std::int64_t attention = 4 * 32 * 2 * 24 + 2 * 32, other = 2 * 3 * 32 * 32 + 2 * 32;
  EXPECT_EQ(model->parameter_count(), 2 * 50 * 32 + 16 * 32 + attention + 2 * other + 2 * 32);
  const testing::StepGradients step(
      [&](const ParameterVisitor& visit) { model->visit_parameters(visit); }, stream_);
  PlainTape tape{Pass{}};
  model->forward(batch_, 1, tape, stream_);
  model->backward(batch_, tape, stream_);
  EXPECT_TRUE(tape.empty());
  model->visit_parameters([](Parameter& parameter) {
    EXPECT_TRUE(parameter.gradient().defined()) << parameter.name();
  });
}

TEST_F(SecondFamily, CachedDecodingMatchesForward) {
  const auto model = make_model(config_.model, 1, stream_, registry());
  CachedDecoder decoder(*model, DType::kF32, stream_);
  const Tensor tokens = testing::random_tokens({1, 12}, 50, 5, stream_);
  const Tensor wanted = model->logits(tokens, {.training = false}, stream_);
  for (std::int64_t t = 0; t < 12; ++t) {
    decoder.see({tokens.data<std::int32_t>(), static_cast<std::size_t>(t + 1)});
    const auto got = decoder.logits();
    for (std::size_t v = 0; v < 50; ++v)
      EXPECT_NEAR(got[v], wanted.data<float>()[t * wanted.size(1) + static_cast<int>(v)], 1e-5);
  }
}

TEST_F(SecondFamily, RoundTripsThroughFolder) {
  const TemporaryFolder folder;
  const auto model = make_model(config_.model, 1, stream_, registry());
  export_hugging_face(*model, nullptr, folder.path() / "twin", stream_, registry());
  const ModelConfig read = read_hugging_face_model_config(folder.path() / "twin", 0, registry());
  EXPECT_EQ(read.family, "twin");
  EXPECT_THROW(read_hugging_face_model_config(folder.path() / "twin", 0), DataError);
  const auto back = make_model(read, 2, stream_, registry());
  read_hugging_face_weights(folder.path() / "twin", *back, stream_, registry());
  std::vector<Tensor> left, right;
  model->visit_parameters([&](Parameter& p) { left.push_back(testing::master_of(p)); });
  back->visit_parameters([&](Parameter& p) { right.push_back(testing::master_of(p)); });
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(testing::same_bits(left[i], right[i]));
}

TEST_F(SecondFamily, TrainsFromTextAndLoadsRun) {
  const TemporaryFolder scratch;
  prepare_tiny_data(scratch / "data");
  TrainingRunSettings settings;
  settings.config = tiny_config();
  settings.config.model = {.family = "twin", .layers = 1, .width = 16, .context = 16};
  settings.data = scratch / "data";
  settings.run = scratch / "run";
  std::ostringstream console;
  EXPECT_THROW(run_training(settings, console), ConfigError);
  settings.registry = &registry();
  EXPECT_EQ(run_training(settings, console).end, RunEnd::kFinished);
  EXPECT_NE(console.str().find("Twin, "), std::string::npos) << console.str();
  EXPECT_THROW(load_trained_run(scratch / "run", stream_), ConfigError);
  EXPECT_EQ(load_trained_run(scratch / "run", stream_, registry()).model().config().family, "twin");
}

TEST_F(SecondFamily, SimulationRejectsUnknownFamily) {
  EXPECT_THROW(simulate_memory(config_, {}), ConfigError);
}

}  // namespace
}  // namespace hybrid_trainer
