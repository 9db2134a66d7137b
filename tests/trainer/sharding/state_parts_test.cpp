#include "src/trainer/trainer_checkpoints.h"

#include <filesystem>

#include "src/files/checkpoint.h"
#include "tests/support/counted_reads.h"
#include "tests/trainer/rank_outcome.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kStopped = 13;  // number of steps before the checkpoint
constexpr int kWriters = 3;

/// Matrices of several chunks, with an optimizer state of two tensors each.
HybridTrainerConfig shared_config(std::int64_t zero) {
  HybridTrainerConfig config = rank_config("adamw", 4);
  config.model.width = 80;
  config.model.layers = 3;
  config.distributed.zero = zero;
  return config;
}

/// A trainer of one rank.
class TrainingRank {
 public:
  TrainingRank(const HybridTrainerConfig& config, Communicator* ranks)
      : config_(config),
        model_(make_model(config.model, 1, stream_)),
        trainer_(*model_, config_, stream_, MemoryPool::create("host"), ranks) {}
  void step_to(std::int64_t last) {
    while (trainer_.steps_done() < last)
      trainer_.step(step_batch(config_, trainer_.steps_done(), stream_));
  }
  HybridTrainer& trainer() { return trainer_; }

 private:
  HybridTrainerConfig config_;
  Stream stream_{MemoryPool::create("device")};
  std::unique_ptr<LanguageModel> model_;
  HybridTrainer trainer_;
};

class RankCheckpoints : public ::testing::Test {
 protected:
  std::string folder(const std::string& name) const { return scratch_ / name; }
  void save(const std::string& name, std::int64_t zero, int ranks) {
    run_thread_ranks(ranks, [&](Communicator& rank) {
      TrainingRank one(shared_config(zero), &rank);
      one.step_to(kStopped);
      one.trainer().save(folder(name));
    });
  }
  CheckpointInfo newest(const std::string& name) const {
    return find_newest_checkpoint(folder(name)).checkpoint.value();
  }
  TemporaryFolder scratch_;
};

TEST_F(RankCheckpoints, EqualSharesMatchSingleRankCheckpoint) {
  save("one", 0, 1);
  const std::string wanted = digest_of(newest("one")).all;
  EXPECT_EQ(newest("one").files.count("optimizer.safetensors"), 1u);
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    save(concat("zero", zero), zero, kWriters);
    const CheckpointInfo info = newest(concat("zero", zero));
    EXPECT_EQ(digest_of(info).all, wanted) << zero;
    for (int rank = 0; rank < kWriters; ++rank) {
      const auto bytes = info.files.at(concat("rank-0000", rank, ".safetensors")).bytes;
      const double share = static_cast<double>(bytes) / static_cast<double>(info.bytes());
      EXPECT_NEAR(share * kWriters, 1, 0.06) << "rank " << rank << ", zero " << zero;
    }
  }
}

/// Each rank reads its shards, and some complete files for verification.
TEST_F(RankCheckpoints, EachRankReadsOnlyItsPart) {
  save("ranks", 1, kWriters);
  save("one", 1, 1);
  const auto read_by = [&](const std::string& name, std::int64_t zero, Communicator& rank) {
    TrainingRank one(shared_config(zero), &rank);
    const std::size_t before = bytes_read_by_this_thread();
    EXPECT_TRUE(one.trainer().resume(folder(name)));
    return static_cast<double>(bytes_read_by_this_thread() - before);
  };
  for (const char* const name : {"ranks", "one"}) {
    const CheckpointInfo info = newest(name);
    double largest = 0;
    for (const auto& [file, digest] : info.files)
      largest = std::max(largest, static_cast<double>(digest.bytes));
    const auto whole = static_cast<double>(info.bytes());
    for (const int ranks : {2, 3, 4}) {
      for (const std::int64_t zero : {0, 1, 2, 3}) {
        const double own = zero == 0 ? whole : whole / ranks;
        const double verified = std::max(largest, whole * (ranks == 2 ? 2.0 : 1.0) / kWriters);
        run_thread_ranks(ranks, [&](Communicator& rank) {
          const double read = read_by(name, zero, rank);
          EXPECT_LT(read, verified + 1.15 * own) << name << ' ' << ranks << ", zero " << zero;
          EXPECT_GT(read, 0.8 * own) << name << ' ' << ranks << ", zero " << zero;
        });
      }
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer
