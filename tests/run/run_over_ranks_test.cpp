#include <algorithm>
#include <cerrno>
#include <fstream>

#include "hybrid_trainer/core/error.h"
#include "src/core/machine.h"
#include "src/run/run_files.h"
#include "src/run/run_ranks.h"
#include "tests/run/run_over_ranks.h"
#include "tests/support/faulty_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

TEST_F(RunOverRanks, MatchesCheckpointsOfOneRank) {
  HybridTrainerConfig evaluating = config();
  evaluating.training.evaluate_every_steps = 7;
  train(evaluating, scratch_ / "one", 1);
  const std::string wanted = newest_checkpoint_digest(scratch_ / "one");
  const auto evaluations = [&](const fs::path& run) {
    std::vector<std::optional<double>> losses;
    for (const StepRecord& record : records_of(run)) losses.push_back(record.validation_loss);
    return losses;
  };
  EXPECT_TRUE(evaluations(scratch_ / "one").back());
  for (const int ranks : {2, 3, 4}) {
    const fs::path run = scratch_ / concat("ranks", ranks);
    evaluating.distributed.zero = ranks - 1;
    train(evaluating, run, ranks);
    EXPECT_EQ(newest_checkpoint_digest(run), wanted) << ranks << " ranks";
    EXPECT_EQ(evaluations(run), evaluations(scratch_ / "one")) << ranks << " ranks";
    EXPECT_EQ(records_of(run).size(), 40u);
    EXPECT_EQ(records_of(run / "ranks/1").size(), 40u);
    EXPECT_TRUE(fs::file_size(run / "ranks/1/log.txt") > 0);
    EXPECT_FALSE(fs::exists(run / "ranks/0"));
    EXPECT_FALSE(fs::exists(run / "ranks/1/checkpoints"));
  }
}

TEST_F(RunOverRanks, ResumesWithOtherNumberOfRanks) {
  train(config(), scratch_ / "one", 1);
  const std::string wanted = newest_checkpoint_digest(scratch_ / "one");
  const fs::path run = scratch_ / "run";
  train(config(), run, 3);
  for (const char* const left : {"step-0000000040", "step-0000000030"})
    ASSERT_GT(fs::remove_all(run / "checkpoints" / left), 0u);
  train(config(), run, 2, true);
  EXPECT_EQ(newest_checkpoint_digest(run), wanted);
}

/// Exports the weights from before the prediction.
TEST_F(RunOverRanks, LoadsSameWeightsFromPredictAsOneRank) {
  HybridTrainerConfig saving = config();
  saving.checkpoint.every_steps = 1;
  saving.checkpoint.keep = 100;
  train(saving, scratch_ / "one", 1);
  saving.distributed.zero = 2;
  train(saving, scratch_ / "ranks", 3);
  const std::vector<StepRecord> records = records_of(scratch_ / "one");
  const auto predicted = std::find_if(records.begin(), records.end(), [](const StepRecord& one) {
    return one.phase == Phase::kPredict;
  });
  ASSERT_NE(predicted, records.end());
  const Stream stream{MemoryPool::create("device")};
  std::vector<std::vector<float>> weights;
  for (const char* const run : {"one", "ranks"}) {
    const fs::path copy = scratch_ / concat(run, "-copy");
    copy_up_to(scratch_ / run, copy, predicted->step, saving.training.steps);
    const TrainedRun read = load_trained_run(copy, stream);
    EXPECT_EQ(read.step, predicted->step);
    weights.emplace_back();
    read.model().visit_parameters([&](Parameter& parameter) {
      const float* const values = parameter.master_in_place().data<float>();
      weights.back().insert(weights.back().end(), values, values + parameter.elements());
    });
  }
  EXPECT_TRUE(weights[0] == weights[1]);
}

/// The disk of rank 1 is full at first.
TEST_F(RunOverRanks, RetriesCheckpointWhenOneRankCannotSave) {
  train(config(), scratch_ / "one", 1);
  HybridTrainerConfig saving = config();
  saving.checkpoint.keep = 100;
  for (const std::int64_t zero : {0, 3}) {
    saving.distributed.zero = zero;
    const fs::path run = scratch_ / concat("zero", zero);
    {
      const FileFault fault(
          {.at = 0, .error = ENOSPC, .only = FileCall::kOpen, .within = "rank-00001.safetensors"});
      train(saving, run, 3);
    }
    for (const char* const rank : {"ranks/1", "ranks/2"}) {
      const std::string log = read_text(run / rank / "log.txt");
      for (const char* const told :
           {"no checkpoint at step 10: cannot write the checkpoint of step 10 (rank 1: ",
            "saved a checkpoint at step 11, after earlier attempts failed"})
        EXPECT_NE(log.find(told), log.npos) << log;
    }
    EXPECT_FALSE(fs::exists(run / "checkpoints/step-0000000010"));
    EXPECT_TRUE(fs::exists(run / "checkpoints/step-0000000011/rank-00002.safetensors"));
    EXPECT_EQ(newest_checkpoint_digest(run), newest_checkpoint_digest(scratch_ / "one"));
  }
}

/// All ranks use the last undamaged checkpoint and reach the same end.
TEST_F(RunOverRanks, ResumesFromLastUndamagedCheckpoint) {
  train(config(), scratch_ / "one", 1);
  const fs::path run = scratch_ / "run";
  train(config(), run, 3);
  fs::resize_file(run / "checkpoints/step-0000000040/rank-00002.safetensors", 100);
  fs::remove(run / "checkpoints/step-0000000030/rank-00000.safetensors");
  train(config(), run, 2, true);
  EXPECT_EQ(newest_checkpoint_digest(run), newest_checkpoint_digest(scratch_ / "one"));
  const std::string log = read_text(run / "ranks/1/log.txt");
  for (const char* const told :
       {"step-0000000040 is damaged (checksum check: rank-00002.safetensors has 100 bytes",
        "step-0000000030 is damaged (checksum check: rank-00000.safetensors does not exist",
        "using step-0000000020", "resumes after step 20"})
    EXPECT_NE(log.find(told), log.npos) << log;
}

/// Runs stopped in any phase on any number of ranks with any sharding, resumed with others.
class ResumeOverRanks : public RunOverRanks {
 protected:
  void SetUp() override {
    RunOverRanks::SetUp();
    saving_ = config();
    saving_.model.width = 80;  // matrices of more than one chunk
    saving_.distributed.bucket_bytes = 1 << 14;
    saving_.checkpoint.every_steps = 1;
    saving_.checkpoint.keep = 100;
    train(saving_, scratch_ / "one", 1);
    wanted_ = newest_checkpoint_digest(scratch_ / "one");
    records_ = records_of(scratch_ / "one");
  }

  /// Trains a complete run with all checkpoints.
  fs::path run_of(int ranks, std::int64_t zero) {
    const fs::path run = scratch_ / concat("run", ranks, "-", zero);
    saving_.distributed.zero = zero;
    train(saving_, run, ranks);
    EXPECT_EQ(newest_checkpoint_digest(run), wanted_) << ranks << " ranks, zero " << zero;
    return run;
  }

  void expect_the_same_from(const fs::path& run, Phase phase, int ranks, std::int64_t zero) {
    const std::int64_t steps = saving_.training.steps;
    const auto in_phase = [&](const StepRecord& record) {
      return record.phase == phase && record.step > 12 && record.step < steps;
    };
    const auto at = std::find_if(records_.begin(), records_.end(), in_phase);
    const std::int64_t last = at == records_.end() ? 3 : at->step;
    const fs::path copy = scratch_ / "copy";
    copy_up_to(run, copy, last, steps);
    HybridTrainerConfig other = saving_;
    other.distributed.zero = zero;
    other.checkpoint.every_steps = 0;
    train(other, copy, ranks, true);
    EXPECT_EQ(newest_checkpoint_digest(copy), wanted_)
        << run << ", stopped after step " << last << " in " << name_of(phase) << ", then " << ranks
        << ", zero " << zero;
    fs::remove_all(copy);
  }

  HybridTrainerConfig saving_;
  std::string wanted_;
  std::vector<StepRecord> records_;
};

/// Combines each number of ranks before with each number after, in two phases. Each run, with two
/// ZeRO stages for each number of ranks, is resumed in each phase.
TEST_F(ResumeOverRanks, MatchesForEachPairOfRankCounts) {
  int number = 0;
  for (const int before : {1, 2, 3, 4}) {
    for (const std::int64_t zero : {before % 4, (before + 2) % 4}) {
      const fs::path run = run_of(before, zero);
      for (const int after : {1, 2, 3, 4}) {
        const int shift = before + static_cast<int>(zero);  // covers all phases for each pair
        const Phase phase = kAllPhases[static_cast<std::size_t>(++number + shift) % kPhases];
        expect_the_same_from(run, phase, after, (zero + number) % 4);
      }
    }
  }
}

/// All 1,024 combinations, which take many minutes.
TEST_F(ResumeOverRanks, DISABLED_MatchesForAllCombinations) {
  for (const int before : {1, 2, 3, 4}) {
    for (const std::int64_t zero : {0, 1, 2, 3}) {
      const fs::path run = run_of(before, zero);
      for (const int after : {1, 2, 3, 4}) {
        for (const std::int64_t zero_after : {0, 1, 2, 3}) {
          for (const Phase phase : kAllPhases) expect_the_same_from(run, phase, after, zero_after);
        }
      }
    }
  }
}

TEST_F(RunOverRanks, AdaptersMatchOneRankBitForBit) {
  HybridTrainerConfig adapters = config();
  adapters.lora.rank = 4;
  train(adapters, scratch_ / "one", 1);
  adapters.distributed.zero = 3;
  train(adapters, scratch_ / "three", 3);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "three"),
            newest_checkpoint_digest(scratch_ / "one"));
}

TEST_F(RunOverRanks, RecordsMetricsOverAllRanks) {
  HybridTrainerConfig mixture = config();
  mixture.model.family = "mixtral";
  mixture.model.experts = {.count = 4, .chosen = 2, .balance_loss = 0.02, .z_loss = 1e-3};
  train(mixture, scratch_ / "one", 1);
  train(mixture, scratch_ / "two", 2);
  const std::vector<StepRecord> of_one = records_of(scratch_ / "one"),
                                of_two = records_of(scratch_ / "two");
  ASSERT_EQ(of_one.size(), of_two.size());
  for (std::size_t i = 0; i < of_one.size(); ++i) {
    const ExpertLoads &one = of_one[i].experts, &two = of_two[i].experts;
    EXPECT_EQ(one.most, two.most) << i;
    EXPECT_EQ(one.least, two.least) << i;
    EXPECT_EQ(one.dead, two.dead) << i;
    ASSERT_EQ(one.entropy.size(), two.entropy.size());
    for (std::size_t layer = 0; layer < one.entropy.size(); ++layer)
      EXPECT_NEAR(one.entropy[layer], two.entropy[layer], 1e-9) << i;
    EXPECT_NEAR(one.balance_loss, two.balance_loss, 1e-9) << i;
    EXPECT_NEAR(one.z_loss, two.z_loss, 1e-9) << i;
    EXPECT_EQ(of_one[i].routing_flips, of_two[i].routing_flips) << i;
    EXPECT_EQ(of_one[i].tokens, of_two[i].tokens) << i;
    EXPECT_EQ(of_one[i].effective_batch, of_two[i].effective_batch) << i;
  }
}

TEST_F(RunOverRanks, SummaryReportsBytesSent) {
  run_thread_ranks(2, [&](Communicator& rank) {
    const TrainingRunResult result = train_rank(config(), scratch_ / "run", false, rank);
    ASSERT_TRUE(result.summary.distributed);
    EXPECT_EQ(result.summary.distributed->ranks, 2);
    EXPECT_GT(result.summary.distributed->bytes_sent, 0u);
    EXPECT_NE(
        result.summary_json.find("\"distributed\":{\"ranks\":2,\"zero\":0,\"backend\":\"threads\""),
        std::string::npos);
  });
}

TEST_F(RunOverRanks, RejectsRanksWithDifferentConfig) {
  const auto rank = [&](Communicator& ranks) {
    HybridTrainerConfig own = config();
    own.training.seed += ranks.rank();
    train_rank(own, scratch_ / "run", false, ranks);
  };
  try {
    run_thread_ranks(2, rank);
    FAIL() << "ranks with different seeds trained together";
  } catch (const UsageError& error) {
    const std::string message = error.what();
    EXPECT_EQ(message, concat("rank 1 (", host_name(), ") differs from rank 0 (", host_name(),
                              ") in the configuration: training.seed: ", config().training.seed + 1,
                              ", want ", config().training.seed));
  }
}

/// One rank has different data with the same number of tokens.
TEST_F(RunOverRanks, RejectsDifferentDataOfEqualLength) {
  const fs::path other = scratch_ / "other";
  fs::copy(data_, other);
  std::fstream shard(other / "train_000000.bin", std::ios::in | std::ios::out | std::ios::binary);
  shard.seekp(-2, std::ios::end);
  shard.write("\1\0", 2);
  shard.close();
  const auto rank = [&](Communicator& ranks) {
    train_rank(config(), scratch_ / "run", false, ranks, ranks.rank() == 2 ? other : data_);
  };
  try {
    run_thread_ranks(3, rank);
    FAIL() << "ranks with different data trained together";
  } catch (const UsageError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("rank 2 (")) << message;
    EXPECT_NE(message.find("in the data's checksum"), message.npos) << message;
  }
}

TEST_F(RunOverRanks, RejectsFolderThatIsNotShared) {
  const auto rank = [&](Communicator& ranks) {
    train_rank(config(), scratch_ / concat("run", ranks.rank()), false, ranks);
  };
  try {
    run_thread_ranks(2, rank);
    FAIL() << "ranks with different folders trained together";
  } catch (const UsageError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("rank 1 on "), message.npos) << message;
    EXPECT_NE(message.find("does not find rank 0's files"), message.npos) << message;
  }
  EXPECT_FALSE(fs::exists(scratch_ / "run0"));
  EXPECT_FALSE(fs::exists(scratch_ / "run1"));
}

TEST_F(RunOverRanks, RejectsFolderOfExistingRun) {
  train(config(), scratch_ / "run", 1);
  EXPECT_THROW(train(config(), scratch_ / "run", 2), CannotCreate);
}

}  // namespace
}  // namespace hybrid_trainer
