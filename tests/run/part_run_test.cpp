// Language models whose parts are trained in different ways.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "src/distributed/host_ranks.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/run/run_export.h"
#include "src/run/run_files.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

class PartRun : public ::testing::Test {
 protected:
  PartRun() { prepare_tiny_data(scratch_ / "data"); }
  static HybridTrainerConfig config() {
    HybridTrainerConfig config = tiny_config();
    config.parts = {{.pattern = "h.*.attn.*", .lora = 2, .base = "bf16"}};
    config.mixed_precision = MixedPrecisionConfig::conservative();
    config.training.threads = 1;
    config.checkpoint.every_steps = 1;
    config.checkpoint.keep = 100;
    return config;
  }
  TrainingRunResult train(const HybridTrainerConfig& config, const std::string& run,
                          bool resume = false) {
    return train_tiny(config, scratch_ / "data", scratch_ / run, resume, &console_);
  }
  std::string refusal(const std::vector<PartConfig>& parts) {
    HybridTrainerConfig config = PartRun::config();
    config.parts = parts;
    try {
      train(config, "refused");
    } catch (const ConfigError& error) {
      EXPECT_FALSE(std::filesystem::exists(scratch_ / "refused"));
      return error.what();
    }
    return "nothing was thrown";
  }
  const TemporaryFolder scratch_;
  const Stream stream_{MemoryPool::create("device")};
  std::string console_;
};

bool tells(const std::string& text, const char* part) { return text.find(part) != text.npos; }

TEST_F(PartRun, CombinesAdaptersWithFullyTrainedParts) {
  const TrainingRunResult result = train(config(), "run");
  EXPECT_LT(*result.summary.final_validation_loss, records_of(scratch_ / "run").front().loss);
  EXPECT_TRUE(tells(console_, "h.*.attn.*: lora 2, base bf16")) << console_;
  const TrainedRun run = load_trained_run(scratch_ / "run", stream_);
  run.network->visit_parameters([&](Parameter& parameter) {
    const bool is_frozen = tells(parameter.name(), ".attn.") && !belongs_to_adapter(parameter);
    EXPECT_EQ(parameter.trainable(), !is_frozen) << parameter.name();
  });
  int adapters = 0;
  run.network->visit_linears(
      [&](Linear& linear) { adapters += linear.adapter() != nullptr ? 1 : 0; });
  EXPECT_EQ(adapters, 2);
  const MemoryNeed need = simulate_memory(run.config, {});
  for (const Phase phase : kAllPhases)
    EXPECT_EQ(need.phase(phase).peak_bytes, result.summary.phase(phase).peak_bytes)
        << name_of(phase);
}

TEST_F(PartRun, ResumesBitForBit) {
  train(config(), "whole");
  for (const std::int64_t step : {5, 17, 22}) {
    const std::string run = concat("cut", step);
    copy_up_to(scratch_ / "whole", scratch_ / run, step, 40);
    train(config(), run, true);
    EXPECT_EQ(newest_checkpoint_digest(scratch_ / run),
              newest_checkpoint_digest(scratch_ / "whole"));
  }
}

TEST_F(PartRun, OverRanksMatchesOneRankBitForBit) {
  HybridTrainerConfig config = PartRun::config();
  config.gradient_accumulation.micro_batches = 2;
  train(config, "one");
  const Interruption interruption;
  for (const std::int64_t zero : {1, 3}) {
    config.distributed.zero = zero;
    const std::string run = concat("zero", zero);
    run_thread_ranks(2, [&](Communicator& ranks) {
      std::ostringstream console;
      run_training({.config = config,
                    .data = scratch_ / "data",
                    .run = scratch_ / run,
                    .init_from = {},
                    .command = "test",
                    .interruption = &interruption,
                    .ranks = &ranks},
                   console);
    });
    EXPECT_EQ(newest_checkpoint_digest(scratch_ / run), newest_checkpoint_digest(scratch_ / "one"));
  }
}

TEST_F(PartRun, ExportsWithAdaptersMerged) {
  train(config(), "run");
  const MergedExport merged = export_merged(scratch_ / "run", scratch_ / "merged", {});
  EXPECT_LT(merged.change.largest_change, 2e-3 * merged.change.largest_logit)
      << "the base was stored in bf16";
  const TrainedRun run = load_trained_run(scratch_ / "run", stream_);
  EXPECT_THROW(export_adapter(run, scratch_ / "adapter", stream_), ConfigError);
  const ModelConfig config = read_hugging_face_model_config(scratch_ / "merged", 0);
  EXPECT_EQ(config.layers, 1);
}

/// Trains a folder's model by parts and exports it to a folder.
TEST_F(PartRun, StartsFromFolderAndFindsItOnResume) {
  train(config(), "first");
  export_merged(scratch_ / "first", scratch_ / "model", {});
  TrainingRunSettings settings{.config = config(),
                               .data = scratch_ / "data",
                               .run = scratch_ / "second",
                               .init_from = scratch_ / "model",
                               .command = "test"};
  std::ostringstream console;
  const TrainingRunResult result = run_training(settings, console);
  EXPECT_LT(records_of(scratch_ / "second").front().loss,
            records_of(scratch_ / "first").front().loss);
  const TrainedRun run = load_trained_run(scratch_ / "second", stream_);
  EXPECT_EQ(run.base.path(), std::filesystem::absolute(scratch_ / "model").lexically_normal());
  copy_up_to(scratch_ / "second", scratch_ / "cut", 17, 40);
  train(config_of_run({(scratch_ / "cut").string()}), "cut", true);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "cut"),
            newest_checkpoint_digest(scratch_ / "second"));
  EXPECT_GT(*result.summary.final_validation_loss, 0);
}

TEST_F(PartRun, PartOverridesAdapterRankOfModel) {
  HybridTrainerConfig config = PartRun::config();
  config.lora.rank = 4;
  config.parts = {{.pattern = "h.*.attn.*", .lora = 2}, {.pattern = "h.*.mlp.c_fc.*", .lora = 0}};
  train(config, "run");
  const TrainedRun run = load_trained_run(scratch_ / "run", stream_);
  run.network->visit_linears([&](Linear& linear) {
    const std::string& name = linear.weight().name();
    const std::int64_t rank = linear.adapter() == nullptr ? 0 : linear.adapter()->spec().rank;
    EXPECT_EQ(rank, tells(name, ".attn.") ? 2 : tells(name, "c_fc") ? 0 : 4) << name;
  });
}

TEST_F(PartRun, RejectsUnsupportedLanguageModelParts) {
  EXPECT_TRUE(
      tells(refusal({{.pattern = "h.0.*", .precision = "fp32"}}),
            "parts: got h.0.* with recompute or precision, but this model does not support"));
  EXPECT_TRUE(tells(refusal({{.pattern = "encoder.*", .lora = 2}}),
                    "parts: encoder.* does not match any of the model's weights"));
  EXPECT_TRUE(tells(refusal({{.pattern = "wte.*", .lora = 2}}),
                    "parts.wte.*.lora: got 2, but it does not match any linear layer"));
}

}  // namespace
}  // namespace hybrid_trainer
