#include "hybrid_trainer/run/training_run.h"

#include <gtest/gtest.h>

#include <cstring>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/token_dataset.h"
#include "src/files/checkpoint.h"
#include "src/generation/evaluation.h"
#include "src/observability/jsonl_sink.h"
#include "src/run/run_files.h"
#include "tests/support/parameters.h"
#include "tests/support/test_files.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

class TrainingRunTest : public ::testing::Test {
 protected:
  void SetUp() override { prepare_tiny_data(data_); }
  TemporaryFolder scratch_;
  std::filesystem::path data_ = scratch_ / "data";
};

TEST_F(TrainingRunTest, LearnsThroughAllPhasesAndWritesFiles) {
  std::string console;
  const TrainingRunResult result =
      train_tiny(tiny_config(), data_, scratch_ / "run", false, &console);
  EXPECT_EQ(result.end, RunEnd::kFinished);
  for (Phase phase : kAllPhases) EXPECT_GT(result.summary.phase(phase).steps, 0) << name_of(phase);
  EXPECT_GT(result.summary.predictions.made, 0);
  EXPECT_EQ(result.summary.steps, 40);
  EXPECT_LT(*result.summary.final_validation_loss, 3.0);
  for (const char* name :
       {"config.json", "metrics.jsonl", "summary.json", "report.html", "checkpoints"}) {
    EXPECT_TRUE(std::filesystem::exists(scratch_ / "run" / name)) << name;
  }
  EXPECT_NE(console.find("AdamW"), 0u);
  EXPECT_NE(console.find("vocabulary"), std::string::npos);
}

TEST_F(TrainingRunTest, ResumesFromAnyStepBitForBit) {
  HybridTrainerConfig config = tiny_config();
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  train_tiny(config, data_, scratch_ / "whole");
  const std::string wanted = newest_checkpoint_digest(scratch_ / "whole");
  for (int stop = 1; stop < 40; stop += 3) {
    const auto run = scratch_ / ("cut" + std::to_string(stop));
    copy_up_to(scratch_ / "whole", run, stop, 40);
    train_tiny(config, data_, run, true);
    EXPECT_EQ(newest_checkpoint_digest(run), wanted) << "stopped after step " << stop;
    int records = 0;
    for_each_record(run / "metrics.jsonl",
                    [&](const StepRecord& record) { EXPECT_EQ(record.step, ++records); });
    EXPECT_EQ(records, 40);
  }
}

/// The check runs before the training instead of after hours.
TEST_F(TrainingRunTest, RejectsUnsupportedExportBeforeTraining) {
  for (const char* family : {"mamba2", "semiseparable"}) {
    HybridTrainerConfig config = tiny_config();
    config.model = tiny_model(family);
    if (config.model.family == "mamba2") config.model.state_space.head_size = 12;
    std::ostringstream console;
    const std::string message = message_of<DataError>([&] {
      run_training({.config = config,
                    .data = data_,
                    .run = scratch_ / family,
                    .export_to = scratch_ / "folder"},
                   console);
    });
    EXPECT_TRUE(contains(message, config.model.family == "mamba2" ? "cannot store 2 heads of 12"
                                                                  : "transformers has no"))
        << message;
    EXPECT_FALSE(std::filesystem::exists(scratch_ / family)) << family;
  }
}

/// Mamba-2, and attention whose window spans several batches.
TEST_F(TrainingRunTest, CarriesStatesAcrossBatchesAndResume) {
  for (const char* family : {"mamba2", "granitemoehybrid"}) {
    HybridTrainerConfig config = tiny_config();
    config.model = tiny_model(family);
    if (config.model.family != "mamba2") config.model.window = 40;
    config.phases.max_predict_steps = 0;
    config.gradient_accumulation.micro_batches = 2;
    config.training.steps = 24;
    const auto digest = [&](const std::filesystem::path& run, bool resume = false) {
      train_tiny(config, data_, run, resume);
      return newest_checkpoint_digest(run);
    };
    const auto at = [&](const char* name) { return scratch_ / concat(family, name); };
    const std::string apart = digest(at("apart"));
    config.data.carry_state = true;
    config.checkpoint.every_steps = 9;
    const std::string wanted = digest(at("whole"));
    EXPECT_NE(wanted, apart);
    for (const std::int64_t stop : {9, 18}) {
      copy_up_to(at("whole"), at("cut"), stop, 24);
      EXPECT_EQ(digest(at("cut"), true), wanted) << family << " stopped after step " << stop;
      std::filesystem::remove_all(at("cut"));
    }
    config.memory.weights = config.memory.activations = "host";
    config.memory.recompute = 1;
    EXPECT_EQ(digest(at("host")), wanted) << family;
  }
}

/// With a learning rate near 0, the losses depend only on the states.
TEST_F(TrainingRunTest, CarriesStatesPastDelayedUpdates) {
  HybridTrainerConfig config = tiny_config();
  config.model = tiny_model("mamba2");
  config.data.carry_state = true;
  config.optimizer.learning_rate = 1e-12;
  config.training.steps = 24;
  config.phases.method = "asynchronous_optimizer";
  const auto losses = [&](std::int64_t predict_steps) {
    config.phases.max_predict_steps = predict_steps;
    const auto run = scratch_ / std::to_string(predict_steps);
    train_tiny(config, data_, run);
    return records_of(run);
  };
  const auto wanted = losses(0), found = losses(6);
  ASSERT_EQ(found.size(), wanted.size());
  std::int64_t predicted = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    predicted += found[i].phase == Phase::kPredict;
    EXPECT_NEAR(found[i].loss, wanted[i].loss, 1e-5) << i;
  }
  EXPECT_GT(predicted, 5);
}

TEST_F(TrainingRunTest, RejectsUnsupportedCarryState) {
  HybridTrainerConfig config = tiny_config();
  config.data.carry_state = true;
  const auto message = [&] {
    try {
      train_tiny(config, data_, scratch_ / "run");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message().find("phases.max_predict_steps=0"), std::string::npos) << message();
  config.phases.max_predict_steps = 0;
  EXPECT_NE(message().find("data.carry_state: got true, but the model has layers"),
            std::string::npos)
      << message();
  config.model = tiny_model("mamba2");
  config.data.batch_size = 4096;
  try {
    train_tiny(config, data_, scratch_ / "run");
    ADD_FAILURE() << "no error";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("one for each of the 4096 rows"), std::string::npos)
        << error.what();
  }
}

TEST_F(TrainingRunTest, CompressedStateSavesAndResumesBitForBit) {
  HybridTrainerConfig config = tiny_config();
  config.predict_aware_memory.offload_strategy = "compress_in_place";
  const auto losses = [&](const std::filesystem::path& run) {
    std::vector<double> found;
    for_each_record(run / "metrics.jsonl",
                    [&](const StepRecord& record) { found.push_back(record.loss); });
    return found;
  };
  config.checkpoint.every_steps = 100;
  train_tiny(config, data_, scratch_ / "unsaved");
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  train_tiny(config, data_, scratch_ / "whole");
  const std::vector<double> wanted = losses(scratch_ / "unsaved");
  EXPECT_EQ(losses(scratch_ / "whole"), wanted);
  for (int stop = 10; stop < 24; ++stop) {
    const auto run = scratch_ / ("cut" + std::to_string(stop));
    copy_up_to(scratch_ / "whole", run, stop, 40);
    train_tiny(config, data_, run, true);
    EXPECT_EQ(losses(run), wanted) << "stopped after step " << stop;
  }
  config.predict_aware_memory.offload_strategy = "cpu_offload";
  train_tiny(config, data_, scratch_ / "exact");
  EXPECT_NE(losses(scratch_ / "exact"), wanted) << "rounding had no effect";
}

TEST_F(TrainingRunTest, EightBitStateResumesOnlyAsEightBit) {
  HybridTrainerConfig config = tiny_config();
  config.model.width = 64;
  config.optimizer.state_bits = 8;
  train_tiny(config, data_, scratch_ / "whole");
  const std::string wanted = newest_checkpoint_digest(scratch_ / "whole");
  const auto run = scratch_ / "cut";
  std::filesystem::copy(scratch_ / "whole", run, std::filesystem::copy_options::recursive);
  for (const char* step : {"step-0000000030", "step-0000000040"})
    std::filesystem::remove_all(run / "checkpoints" / step);
  train_tiny(config, data_, run, true);
  EXPECT_EQ(newest_checkpoint_digest(run), wanted);
  config.optimizer.state_bits = 32;
  config.training.steps = 50;
  try {
    train_tiny(config, data_, run, true);
    FAIL() << "an 8-bit state was resumed with 32 bits";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("state_bits"), std::string::npos) << error.what();
  }
}

TEST_F(TrainingRunTest, EvaluatesAndLoadsAverageWeights) {
  HybridTrainerConfig config = tiny_config();
  config.training.evaluate_every_steps = 10;
  const TrainingRunResult plain = train_tiny(config, data_, scratch_ / "plain");
  config.training.average_weights = 6;
  std::string console;
  const TrainingRunResult result = train_tiny(config, data_, scratch_ / "run", false, &console);
  EXPECT_EQ(*result.summary.final_validation_loss, *plain.summary.final_validation_loss);
  EXPECT_NE(*result.summary.final_average_validation_loss, *plain.summary.final_validation_loss);
  EXPECT_NE(result.summary_json.find("final_average_validation_loss"), std::string::npos);
  EXPECT_EQ(plain.summary_json.find("final_average_validation_loss"), std::string::npos);
  EXPECT_NE(console.find("averaged weights"), std::string::npos);
  std::optional<double> last;
  for_each_record(scratch_ / "run" / "metrics.jsonl", [&](const StepRecord& record) {
    EXPECT_EQ(record.average_validation_loss.has_value(), record.validation_loss.has_value());
    last = record.average_validation_loss;
  });
  EXPECT_EQ(last, result.summary.final_average_validation_loss);

  const Stream stream(MemoryPool::create("device"));
  const TrainedRun average =
      load_trained_run(scratch_ / "run", stream, model_families(), RunWeights::kAverage);
  const TokenDataset validation(data_, Split::kValidation, average.config.model.vocabulary);
  const OrderedBatches windows(TokenWindows::for_evaluation(validation, 16), 4, stream);
  EXPECT_NEAR(evaluate(average.model(), windows, DType::kF32, stream).loss, *last, 1e-9);
  EXPECT_THROW(load_trained_run(scratch_ / "plain", stream, model_families(), RunWeights::kAverage),
               MissingInput);
}

TEST_F(TrainingRunTest, RevertedPredictionsMatchPlainRun) {
  HybridTrainerConfig config = tiny_config();
  config.model.dropout = 0.1;
  config.phases.skip_backward.max_shrinks = 0;
  config.phases.skip_backward.decay = 1;
  config.optimizer.learning_rate = 0.3;  // so large that every predicted step overshoots
  const TrainingRunResult result = train_tiny(config, data_, scratch_ / "reverted");
  ASSERT_GT(result.summary.predictions.made, 0);
  ASSERT_EQ(result.summary.predictions.reverted, result.summary.predictions.made);
  config.phases.max_predict_steps = 0;
  const TrainingRunResult plain = train_tiny(config, data_, scratch_ / "plain");
  EXPECT_EQ(*result.summary.final_validation_loss, *plain.summary.final_validation_loss);
}

TEST_F(TrainingRunTest, RevertedMixedPrecisionMatchesPlainRun) {
  HybridTrainerConfig config = tiny_config();
  config.mixed_precision = {"bf16", "bf16", "fp32", "fp32"};
  config.phases.correct_steps = 2;
  config.phases.skip_backward.max_shrinks = 0;
  config.phases.skip_backward.decay = 1;
  config.optimizer.learning_rate = 3;
  config.training.steps = 32;
  const TrainingRunResult result = train_tiny(config, data_, scratch_ / "reverted");
  ASSERT_GT(result.summary.predictions.made, 0);
  ASSERT_EQ(result.summary.predictions.reverted, result.summary.predictions.made);
  config.phases.max_predict_steps = 0;
  const TrainingRunResult plain = train_tiny(config, data_, scratch_ / "plain");
  EXPECT_EQ(*result.summary.final_validation_loss, *plain.summary.final_validation_loss);
}

TEST_F(TrainingRunTest, DecidesEveryPredictionForAnyStepCount) {
  std::int64_t made = 0;
  for (std::int64_t steps = 15; steps < 45; steps += 2) {
    HybridTrainerConfig config = tiny_config();
    config.training.steps = steps;
    const auto result = train_tiny(config, data_, scratch_ / concat("run", steps));
    const PredictionCounts& counts = result.summary.predictions;
    EXPECT_EQ(counts.made, counts.accepted + counts.shrunk + counts.reverted) << steps << " steps";
    made += counts.made;
  }
  EXPECT_GT(made, 15);
}

TEST_F(TrainingRunTest, RecordsEachDecisionAndStepCost) {
  const TrainingRunResult result = train_tiny(tiny_config(), data_, scratch_ / "run");
  PredictionCounts counts;
  for_each_record(scratch_ / "run" / "metrics.jsonl", [&](const StepRecord& record) {
    const bool decided = record.decision != Decision::kNone;
    counts.accepted += record.decision == Decision::kAccepted;
    counts.shrunk += record.decision == Decision::kShrunk;
    counts.reverted += record.decision == Decision::kReverted;
    EXPECT_EQ(record.kept_fraction.has_value(), decided) << "step " << record.step;
    EXPECT_EQ(decided, record.event.find(name_of(record.decision)) == 0) << record.event;
    EXPECT_GT(record.cost, 0) << "step " << record.step;
  });
  const PredictionCounts& told = result.summary.predictions;
  EXPECT_GT(told.made, 0);
  EXPECT_EQ(counts.accepted, told.accepted);
  EXPECT_EQ(counts.shrunk, told.shrunk);
  EXPECT_EQ(counts.reverted, told.reverted);
  const PhaseUse& warmup = result.summary.phase(Phase::kWarmup);
  EXPECT_EQ(warmup.cost, static_cast<double>(warmup.steps))
      << "each step costs as much as a Full step";
}

TEST_F(TrainingRunTest, EvaluationInPredictWaitsForDecision) {
  HybridTrainerConfig config = tiny_config();
  config.training.evaluate_every_steps = 1;
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  train_tiny(config, data_, scratch_ / "run");
  const auto evaluated = [](const std::filesystem::path& run) {
    std::string steps;
    for_each_record(run / "metrics.jsonl", [&](const StepRecord& record) {
      EXPECT_EQ(record.validation_loss.has_value(), record.phase != Phase::kPredict)
          << "step " << record.step;
      if (record.validation_loss) steps += concat(record.step, ' ', *record.validation_loss, '\n');
    });
    return steps;
  };
  const std::string wanted = evaluated(scratch_ / "run");
  for (int stop = 12; stop < 24; ++stop) {  // includes Predict
    const auto cut = scratch_ / concat("cut", stop);
    copy_up_to(scratch_ / "run", cut, stop, 40);
    train_tiny(config, data_, cut, true);
    EXPECT_EQ(evaluated(cut), wanted) << "stopped after step " << stop;
  }
}

TEST_F(TrainingRunTest, CheckpointInPredictLoadsAcceptedWeights) {
  HybridTrainerConfig config = tiny_config();
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  train_tiny(config, data_, scratch_ / "run");
  std::int64_t in_predict = 0;
  for_each_record(scratch_ / "run" / "metrics.jsonl", [&](const StepRecord& record) {
    if (record.phase == Phase::kPredict) in_predict = record.step;
  });
  ASSERT_GT(in_predict, 0);
  copy_up_to(scratch_ / "run", scratch_ / "cut", in_predict, 40);
  const Stream stream(MemoryPool::create("host"));
  const TrainedRun trained = load_trained_run(scratch_ / "cut", stream);
  const State saved = load_checkpoint(
      *find_newest_checkpoint((scratch_ / "cut" / "checkpoints").string()).checkpoint, stream);
  std::int64_t moved = 0;
  trained.model().visit_parameters([&](Parameter& parameter) {
    const auto equals = [&](const std::string& name) {
      return testing::same_bits(testing::master_of(parameter), saved.tensor(name));
    };
    EXPECT_TRUE(equals("snapshot." + parameter.name())) << parameter.name();
    moved += !equals("model." + parameter.name());
  });
  EXPECT_GT(moved, 0) << "the prediction had not moved the weights";
}

TEST_F(TrainingRunTest, ResumeWithoutCheckpointStartsFromScratch) {
  const TrainingRunResult result = train_tiny(tiny_config(), data_, scratch_ / "new", true);
  EXPECT_EQ(result.end, RunEnd::kFinished);
  EXPECT_EQ(result.summary.steps, 40);
}

TEST_F(TrainingRunTest, ExistingRunFolderSuggestsResume) {
  train_tiny(tiny_config(), data_, scratch_ / "run");
  try {
    train_tiny(tiny_config(), data_, scratch_ / "run");
    FAIL() << "a second run was accepted in the folder";
  } catch (const CannotCreate& error) {
    EXPECT_NE(std::string(error.what()).find("--resume"), std::string::npos) << error.what();
  }
}

TEST_F(TrainingRunTest, ResumeRejectsChangedModelByKey) {
  HybridTrainerConfig config = tiny_config();
  train_tiny(config, data_, scratch_ / "run");
  config.model.width = 32;
  try {
    train_tiny(config, data_, scratch_ / "run", true);
    FAIL() << "a different model was resumed";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("model.width"), std::string::npos) << error.what();
  }
}

TEST_F(TrainingRunTest, InvalidDataOrConfigLeavesNoFolder) {
  HybridTrainerConfig config = tiny_config();
  config.data.batch_size = 0;
  EXPECT_THROW(train_tiny(config, data_, scratch_ / "a"), ConfigError);
  EXPECT_THROW(train_tiny(tiny_config(), scratch_ / "nowhere", scratch_ / "a"), MissingInput);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "a"));
}

}  // namespace
}  // namespace hybrid_trainer
