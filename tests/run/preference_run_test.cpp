#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "src/distributed/host_ranks.h"
#include "src/run/language_data.h"
#include "src/run/run_export.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"
#include "tests/support/tiny_run.h"

// Runs on preference pairs.
namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

std::string letters(std::uint64_t seed, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i)
    text += static_cast<char>('a' + random_below({seed}, i, std::uint64_t{8}));
  return text;
}

/// A random prompt and two answers of random letters and a dot; the shorter answer is preferred.
std::string pair_line(std::uint64_t seed) {
  const std::size_t shorter = 2 + random_below({seed, 1}, 0, std::uint64_t{3});
  const std::size_t longer = 7 + random_below({seed, 1}, 1, std::uint64_t{5});
  return concat(R"({"prompt":")", letters(3 * seed, 4), R"(","chosen":")",
                letters(3 * seed + 1, shorter), R"(.","rejected":")", letters(3 * seed + 2, longer),
                ".\"}\n");
}

class PreferenceRun : public ::testing::Test {
 protected:
  PreferenceRun() { make_folder(1, 16); }
  void make_folder(std::int64_t layers, std::int64_t width) {
    const Stream stream(MemoryPool::create("test"));
    HybridTrainerConfig shape = tiny_config();
    shape.model.family = "llama";
    shape.model.layers = layers;
    shape.model.width = width;
    shape.model.context = 64;
    shape.model.initializer_range = 0.2;
    shape.model.vocabulary = 256;
    fs::remove_all(scratch_ / "model");
    export_hugging_face(*make_model(shape.model, 5, stream), nullptr, scratch_ / "model", stream);
    write_text(scratch_ / "model/tokenizer.json", R"({"type":"bytes"})");
    write_pairs("pairs.jsonl", 0, 48);
    write_pairs("held_out.jsonl", 1000, 40);
  }
  void write_pairs(const std::string& name, std::uint64_t first, std::uint64_t count) const {
    std::string lines;
    for (std::uint64_t i = first; i < first + count; ++i) lines += pair_line(i);
    write_text(scratch_ / name, lines);
  }
  HybridTrainerConfig config(const std::string& objective = "dpo") const {
    HybridTrainerConfig config = tiny_config();
    config.model = read_hugging_face_model_config(scratch_ / "model", 0);
    config.objective = objective;
    config.data.batch_size = 2;
    config.data.sequence_length = 48;
    config.data.layout = "packed";
    config.phases.max_predict_steps = 0;
    config.mixed_precision.full = config.mixed_precision.warmup = "fp32";
    return config;
  }
  TrainingRunSettings settings(const HybridTrainerConfig& config, const std::string& run,
                               bool resume = false) const {
    return {.config = config,
            .data = scratch_ / "pairs.jsonl",
            .validation = scratch_ / "held_out.jsonl",
            .run = scratch_ / run,
            .resume = resume,
            .init_from = scratch_ / "model",
            .command = "test"};
  }
  TrainingRunResult train(const HybridTrainerConfig& config, const std::string& run,
                          bool resume = false) {
    console_.str("");
    return run_training(settings(config, run, resume), console_);
  }
  std::string digest(const std::string& run) const {
    return newest_checkpoint_digest(scratch_ / run);
  }

  const TemporaryFolder scratch_;
  std::ostringstream console_;
};

TEST_F(PreferenceRun, GeneralizesPreferenceToUnseenPairs) {
  make_folder(2, 32);
  write_pairs("pairs.jsonl", 0, 300);
  for (const char* objective : {"dpo", "orpo"}) {
    for (const std::int64_t rank : {0, 8}) {
      HybridTrainerConfig config = PreferenceRun::config(objective);
      config.lora.rank = rank;
      config.lora.alpha = 16;
      config.training.steps = 300;
      config.optimizer.learning_rate = rank > 0 ? 1e-2 : 5e-3;
      config.optimizer.weight_decay = 0;
      config.data.batch_size = 4;
      if (config.objective == "orpo") {  // otherwise random letters dominate its loss
        config.preference_beta = 8;
        config.training.steps = 600;
        config.optimizer.learning_rate /= 2;
      }
      const std::string run = concat(objective, rank);
      train(config, run);
      const std::vector<StepRecord> records = records_of(scratch_ / run);
      const StepRecord& last = records.back();
      ASSERT_TRUE(last.validation_preference_accuracy) << run;
      EXPECT_GE(*last.validation_preference_accuracy, 0.95) << run;
      if (config.objective == "dpo") {
        EXPECT_GT(*last.validation_reward_margin, 0.1) << run;
      }
      for (const StepRecord& record : records) {
        ASSERT_TRUE(record.reward_chosen && record.reward_rejected) << record.step;
        EXPECT_NEAR(*record.reward_margin, *record.reward_chosen - *record.reward_rejected, 1e-12);
        EXPECT_GE(*record.preference_accuracy, 0);
        EXPECT_LE(*record.preference_accuracy, 1);
      }
    }
  }
}

/// The reference is the initial model.
TEST_F(PreferenceRun, DpoStartsAtZeroRewardAndLogTwoLoss) {
  for (const std::int64_t rank : {0, 4}) {
    HybridTrainerConfig config = PreferenceRun::config();
    config.lora.rank = rank;
    const std::string run = concat("run", rank);
    train(config, run);
    const StepRecord first = records_of(scratch_ / run).front();
    EXPECT_NEAR(first.loss, std::log(2), 1e-5);
    EXPECT_NEAR(*first.reward_chosen, 0, 1e-4);
    EXPECT_NEAR(*first.reward_rejected, 0, 1e-4);
    EXPECT_TRUE(fs::exists(scratch_ / run / "reference.bin"));
    EXPECT_TRUE(contains(console_.str(), "reference: computing")) << console_.str();
  }
  train(config("orpo"), "orpo");
  EXPECT_FALSE(fs::exists(scratch_ / "orpo/reference.bin"));
}

/// Initial adapters are part of the reference, so the first rewards are 0.
TEST_F(PreferenceRun, InitialAdapterIsPartOfReference) {
  HybridTrainerConfig config = PreferenceRun::config();
  config.lora.rank = 4;
  config.optimizer.learning_rate = 1e-2;
  train(config, "first");
  ASSERT_GT(*records_of(scratch_ / "first").back().validation_reward_margin, 1e-2);
  const Stream stream(MemoryPool::create("device"));
  export_adapter(load_trained_run(scratch_ / "first", stream), scratch_ / "adapter", stream);
  config.training.steps = 1;
  config.optimizer.learning_rate = 1e-12;
  TrainingRunSettings given = settings(config, "second");
  given.adapter = scratch_ / "adapter";
  run_training(given, console_);
  EXPECT_NEAR(*records_of(scratch_ / "second").back().validation_reward_margin, 0, 1e-4);
}

TEST_F(PreferenceRun, DependsOnBeta) {
  for (const char* objective : {"dpo", "orpo"}) {
    HybridTrainerConfig config = PreferenceRun::config(objective);
    config.training.steps = 5;
    train(config, concat(objective, "-usual"));
    config.preference_beta = 0.5;
    train(config, concat(objective, "-more"));
    EXPECT_NE(digest(concat(objective, "-more")), digest(concat(objective, "-usual")));
  }
}

TEST_F(PreferenceRun, ResumesFromAnyStepBitForBit) {
  for (const char* objective : {"dpo", "orpo"}) {
    HybridTrainerConfig config = PreferenceRun::config(objective);
    config.checkpoint.every_steps = 1;
    config.checkpoint.keep = 100;
    config.checkpoint.keep_best = 1;
    config.training.evaluate_every_steps = 5;
    config.training.steps = 20;
    train(config, objective);
    for (const std::int64_t stop : {1, 7, 13, 19}) {
      const std::string run = concat(objective, stop);
      copy_up_to(scratch_ / objective, scratch_ / run, stop, 20);
      train(config, run, true);
      EXPECT_EQ(digest(run), digest(objective)) << "stopped after step " << stop;
      EXPECT_FALSE(contains(console_.str(), "reference: computing"));
    }
  }
}

TEST_F(PreferenceRun, WithPredictionsResumesBitForBit) {
  HybridTrainerConfig config = PreferenceRun::config();
  config.phases.max_predict_steps = 6;
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  const TrainingRunResult result = train(config, "whole");
  EXPECT_GT(result.summary.phase(Phase::kPredict).steps, 0);
  copy_up_to(scratch_ / "whole", scratch_ / "cut", 17, 40);
  train(config, "cut", true);
  EXPECT_EQ(digest("cut"), digest("whole"));
}

TEST_F(PreferenceRun, OverRanksMatchesOneRankBitForBit) {
  HybridTrainerConfig config = PreferenceRun::config();
  config.gradient_accumulation.micro_batches = 3;
  config.data.batch_size = 1;
  config.training.threads = 1;
  config.training.steps = 12;
  config.training.evaluate_every_steps = 4;
  const auto over = [&](int count, const std::string& run) {
    const Interruption interruption;
    run_thread_ranks(count, [&](Communicator& ranks) {
      std::ostringstream console;
      TrainingRunSettings given = settings(config, run);
      given.interruption = &interruption;
      given.ranks = &ranks;
      run_training(given, console);
    });
  };
  over(1, "one");
  for (const int ranks : {2, 3}) {
    const std::string run = concat("ranks", ranks);
    config.distributed.zero = ranks - 1;
    over(ranks, run);
    EXPECT_EQ(digest(run), digest("one")) << ranks;
    EXPECT_EQ(read_text(scratch_ / run / "reference.bin"),
              read_text(scratch_ / "one/reference.bin"));
    const auto wanted = records_of(scratch_ / "one"), found = records_of(scratch_ / run);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_EQ(found[i].validation_reward_margin, wanted[i].validation_reward_margin) << i;
  }
}

TEST_F(PreferenceRun, PackedPairsMatchSeparatePairs) {
  for (const char* objective : {"dpo", "orpo"}) {
    HybridTrainerConfig config = PreferenceRun::config(objective);
    config.training.steps = 4;
    config.schedule.warmup_steps = 0;
    const auto records = [&](const char* layout) {
      config.data.layout = layout;
      const auto tokenizer = load_tokenizer(scratch_ / "model");
      const ExampleData data = read_example_data({.examples = scratch_ / "pairs.jsonl",
                                                  .validation = scratch_ / "held_out.jsonl",
                                                  .tokenizer = scratch_ / "model",
                                                  .pairs = true},
                                                 config.data);
      config.data.batch_size = PackedRows(data.train, packing_of(config.data, *tokenizer)).size();
      const std::string run = concat(objective, "-", layout);
      train(config, run);
      return records_of(scratch_ / run);
    };
    const auto apart = records("apart");
    const std::int64_t pairs = config.data.batch_size;
    const auto packed = records("packed");
    EXPECT_LT(config.data.batch_size, pairs);
    for (std::size_t i = 0; i < apart.size(); ++i) {
      EXPECT_NEAR(packed[i].loss, apart[i].loss, 1e-4 * apart[i].loss) << objective << i;
      EXPECT_NEAR(*packed[i].gradient_norm, *apart[i].gradient_norm,
                  1e-3 * (1 + *apart[i].gradient_norm))
          << objective << i;
      EXPECT_NEAR(*packed[i].reward_margin, *apart[i].reward_margin, 1e-4) << objective << i;
    }
  }
}

TEST_F(PreferenceRun, UsesNoMoreMemoryThanFineTuning) {
  std::string lines;
  for (std::uint64_t i = 0; i < 48; ++i)
    lines += concat(R"({"prompt":")", letters(i, 8), R"(","completion":")", letters(i + 500, 12),
                    "\"}\n");
  write_text(scratch_ / "rows.jsonl", lines);
  make_folder(3, 128);
  for (const std::int64_t rank : {0, 4}) {
    const auto peak = [&](const char* objective) {
      HybridTrainerConfig config = PreferenceRun::config(objective);
      config.data.batch_size = 8;
      config.lora.rank = rank;
      config.training.steps = 3;
      TrainingRunSettings given = settings(config, concat(objective, rank));
      if (!config.prefers()) given.data = given.validation = scratch_ / "rows.jsonl";
      std::ostringstream console;
      run_training(given, console);
      std::size_t most = 0;
      for (const StepRecord& record : records_of(given.run))
        most = std::max(most, record.device_memory.peak_total);
      return static_cast<double>(most);
    };
    const double of_rows = peak("next_token");
    for (const char* objective : {"dpo", "orpo"})
      EXPECT_LE(peak(objective), 1.01 * of_rows) << objective << " of rank " << rank;
  }
}

TEST_F(PreferenceRun, RefusesToResumeWithoutReference) {
  HybridTrainerConfig config = PreferenceRun::config();
  config.training.steps = 6;
  train(config, "run");
  config.training.steps = 8;
  const fs::path file = scratch_ / "run/reference.bin";
  const std::string content = read_text(file);
  fs::remove(file);
  EXPECT_TRUE(contains(message_of<DataError>([&] { train(config, "run", true); }),
                       "reference.bin: does not exist or belongs to other pairs"));
  std::string damaged = content;
  damaged.back() = static_cast<char>(damaged.back() + 1);
  write_text(file, damaged);
  EXPECT_TRUE(contains(message_of<DataError>([&] { train(config, "run", true); }), "is damaged"));
  write_text(file, content);
  EXPECT_EQ(train(config, "run", true).summary.steps, 8);
}

TEST_F(PreferenceRun, SkipsEqualPairAndReportsItsLine) {
  write_text(scratch_ / "pairs.jsonl",
             pair_line(1) + R"({"prompt":"a","chosen":"b","rejected":"b"})" + "\n" + pair_line(2));
  train(config(), "run");
  EXPECT_TRUE(contains(console_.str(), "line 2 of")) << console_.str();
  EXPECT_TRUE(contains(console_.str(), "are equal, so there is no preference"));
}

TEST_F(PreferenceRun, RejectsWindowsLayoutAndSegments) {
  HybridTrainerConfig windows = config();
  windows.data.layout = "windows";
  EXPECT_TRUE(contains(message_of<ConfigError>([&] { train(windows, "run"); }),
                       "pairs of answers need a file of examples"));
  HybridTrainerConfig segments = config();
  segments.memory.segment_length = 64;
  EXPECT_TRUE(
      contains(message_of<ConfigError>([&] { train(segments, "run"); }), "memory.segment_length"));
}

}  // namespace
}  // namespace hybrid_trainer
