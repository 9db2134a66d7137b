#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/trainer/memory_plan.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "src/distributed/host_ranks.h"
#include "src/run/run_export.h"
#include "src/run/run_files.h"
#include "src/run/speech/clips.h"
#include "src/run/speech/transcription.h"
#include "tests/run/speech_runs.h"

namespace hybrid_trainer {
namespace {

class SpeechRun : public SpeechRuns {
 protected:
  /// Steps of two micro-batches with masked features.
  HybridTrainerConfig masked_config() const {
    HybridTrainerConfig config = SpeechRuns::config();
    config.gradient_accumulation.micro_batches = 2;
    config.data.batch_size = 2;
    config.training.threads = 1;
    config.data.mask_frames = true;
    return config;
  }
  /// masked_config() with delayed updates.
  HybridTrainerConfig late_config() const {
    HybridTrainerConfig config = masked_config();
    config.phases = {};
    config.phases.warmup_steps = 8;
    config.phases.method = "asynchronous_optimizer";
    return config;
  }
};

TEST_F(SpeechRun, LearnsToTranscribeTones) {
  HybridTrainerConfig config = SpeechRuns::config();
  config.training.steps = 120;
  config.optimizer.learning_rate = 1e-2;
  config.data.mask_frames = true;
  const TrainingRunResult result = train(config, "run");
  EXPECT_LT(*result.summary.final_validation_loss, 0.1) << console_.str();
  for (const Phase phase : kAllPhases) EXPECT_GT(result.summary.phase(phase).steps, 0);
  const Stream stream(MemoryPool::create("test"));
  const TrainedRun run = load_trained_run(scratch_ / "run", stream);
  const SpeechTokens tokens = read_speech_tokens(*run.tokenizer, generation_keys_of(run));
  ClipFeatures features(run.model().config().encoder);
  for (const auto& [word, hertz] : kWords) {
    write_tone(scratch_ / (word + ".wav"), hertz, 99);
    const Transcript heard = transcribe(run.model(), *run.tokenizer, tokens,
                                        features.of(scratch_ / (word + ".wav")), {}, stream);
    EXPECT_EQ(heard.text, word);
    EXPECT_EQ(heard.language, "en") << "the trained one of two languages";
  }
}

/// A model may write timestamps even if none are requested.
TEST_F(SpeechRun, WithoutTimestampsClipIsOneSegment) {
  HybridTrainerConfig config = SpeechRuns::config();
  config.training.steps = 1;
  train(config, "run");
  const Stream stream(MemoryPool::create("test"));
  const TrainedRun run = load_trained_run(scratch_ / "run", stream);
  SpeechTokens tokens = read_speech_tokens(*run.tokenizer, generation_keys_of(run));
  for (std::int32_t id = 0; id < tokens.first_time(); ++id)
    tokens.keys.rules.suppressed.push_back(id);
  ClipFeatures features(run.model().config().encoder);
  const EncodedClip clip = features.of(scratch_ / "0.wav");
  const Transcript heard = transcribe(run.model(), *run.tokenizer, tokens, clip, {}, stream);
  ASSERT_GT(heard.tokens.size(), 2u);
  ASSERT_EQ(heard.segments.size(), 1u);
  EXPECT_EQ(heard.segments[0].begin, 0);
  EXPECT_NEAR(heard.segments[0].end, static_cast<double>(clip.frames) / 100, 0.021);
}

TEST_F(SpeechRun, ResumesFromAnyStepBitForBit) {
  expect_resumes(masked_config(), "skip-backward", {5, 14, 21, 33});
  EXPECT_EQ(seen_.size(), std::size(kAllPhases));
  seen_.clear();
  expect_resumes(late_config(), "late", {5, 14, 21, 33});
  EXPECT_EQ(seen_.count(Phase::kPredict), 1u);
}

TEST_F(SpeechRun, OverRanksMatchesOneRankBitForBit) { expect_bits_of_one_rank(masked_config()); }

/// The state includes the feature batches of an undecided prediction.
TEST_F(SpeechRun, ResumesOnOtherRankCountBitForBit) {
  HybridTrainerConfig config = masked_config();
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  const std::string one = trained(config, "one");
  std::int64_t in_predict = 0;
  for (const StepRecord& record : records_of(scratch_ / "one"))
    if (record.phase == Phase::kPredict && in_predict == 0) in_predict = record.step;
  ASSERT_GT(in_predict, 0);
  config.distributed.zero = 2;
  EXPECT_EQ(trained_over(2, config, "two"), one);
  copy_up_to(scratch_ / "two", scratch_ / "cut", in_predict, config.training.steps);
  EXPECT_EQ(trained_over(2, config, "cut", true), one);
  copy_up_to(scratch_ / "two", scratch_ / "less", in_predict, config.training.steps);
  EXPECT_EQ(trained_over(1, config, "less", true), one);
}

TEST_F(SpeechRun, MemoryOptionsDoNotChangeResult) {
  auto changes = memory_options();
  changes.emplace_back("places", [](auto& config) {
    config.parts = {{.pattern = "encoder.*", .place = "file"}, {.pattern = "h.*", .place = "host"}};
  });
  expect_same_bits(masked_config(), changes);
}

TEST_F(SpeechRun, UsesExactlyPlannedMemory) {
  std::vector<HybridTrainerConfig> configs(4, masked_config());
  configs[1].memory.recompute = 1;
  configs[2].lora = {.rank = 4, .base = "nf4"};
  configs[3] = late_config();
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const TrainingRunResult result = train(configs[i], concat("run", i));
    const MemoryNeed need = simulate_memory(configs[i], {}, SimulatedPhases::kAll);
    for (const Phase phase : kAllPhases)
      EXPECT_EQ(need.phase(phase).peak_bytes, result.summary.phase(phase).peak_bytes)
          << i << ' ' << name_of(phase);
  }
}

TEST_F(SpeechRun, PlanKeepsDeviceBudget) {
  HybridTrainerConfig config = masked_config();
  config.training.steps = 12;
  const std::size_t all = simulate_memory(config, {}, SimulatedPhases::kAll).device_bytes;
  config.memory.device_budget = MemorySize{all * 4 / 5};
  config.memory.plan = "auto";
  const TrainingRunResult result = train(config, "planned");
  EXPECT_LE(result.summary.device_peak_bytes, all * 4 / 5);
  EXPECT_NE(console_.str().find("planned: "), std::string::npos) << console_.str();
}

TEST_F(SpeechRun, DecoderAdaptersKeepFewerActivations) {
  HybridTrainerConfig config = SpeechRuns::config();
  config.training.steps = 12;
  config.lora.rank = 4;
  const auto activations = [&](const std::string& targets) {
    config.lora.targets = targets;
    const std::string run = targets.substr(0, 3);
    train(config, run);
    std::size_t most = 0;
    for (const StepRecord& record : records_of(scratch_ / run))
      most = std::max(
          most, record.device_memory.peak[static_cast<std::size_t>(MemoryKind::kActivations)]);
    return most;
  };
  const std::size_t all = activations("all-linear");
  EXPECT_LT(activations("encoder_attn.q_proj"), all / 2);
  const MergedExport merged = export_merged(scratch_ / "all", scratch_ / "merged", {});
  EXPECT_LT(merged.change.largest_change, 1e-4 * merged.change.largest_logit);
}

TEST_F(SpeechRun, RejectsInvalidClipRowsByName) {
  const auto refusal = [&](const std::string& row) {
    write_text(scratch_ / "clips.jsonl", row + "\n");
    try {
      train(config(), "refused");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != text.npos;
  };
  EXPECT_TRUE(
      contains(refusal(R"({"audio":"none.wav","text":"low","language":"en"})"), "none.wav"));
  EXPECT_TRUE(contains(refusal(R"({"audio":"0.wav","text":"low"})"), "\"language\" is missing"));
  EXPECT_TRUE(contains(refusal(R"({"audio":"0.wav","text":"low","language":"fr"})"), "got \"fr\""));
  EXPECT_TRUE(contains(refusal(R"({"audio":"0.wav","text":"","language":"en"})"), "text"));
}

}  // namespace
}  // namespace hybrid_trainer
