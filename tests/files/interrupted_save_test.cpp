#include <gtest/gtest.h>

#include <cstring>

#include "src/files/checkpoint.h"
#include "tests/files/ranks_in_turn.h"
#include "tests/support/faulty_files.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kOld = 10, kNew = 20, kNext = 30;

/// Parameter: number of ranks that save, one call at a time.
class InterruptedSave : public ::testing::TestWithParam<int> {
 protected:
  /// A checkpoint's content; `version` distinguishes two states of the same step.
  State state(std::int64_t step, float version = 0) {
    State result;
    result.integers["step"] = step;
    for (const char* name : {"model.weight", "optimizer.weight.m", "predictor.history"}) {
      const Tensor tensor = Tensor::empty({50}, DType::kF32, MemoryKind::kParameters, stream_);
      for (int i = 0; i < 50; ++i) tensor.data<float>()[i] = static_cast<float>(step * i) + version;
      result.tensors[name] = tensor;
    }
    return result;
  }
  /// Saves on all ranks, which all throw the same error.
  void save(std::int64_t step, std::int64_t keep, float version = 0) {
    const State whole = state(step, version);
    if (GetParam() == 1) {
      save_checkpoint(root_, step, {whole}, {keep, "hash"});
      return;
    }
    const auto messages = run_ranks_in_turn(GetParam(), [&](const CheckpointRanks& ranks) {
      CheckpointShare share{whole, {}};
      for (auto& [name, tensor] : share.state.tensors)
        tensor = tensor.rows(ranks.lead() ? 0 : 20, ranks.lead() ? 20 : 50);
      save_checkpoint(root_, step, share, {keep, "hash"}, ranks);
    });
    for (const std::string& message : messages) EXPECT_EQ(message, messages.front());
    if (!messages.front().empty()) throw IoError(messages.front());
  }
  /// Prepares the folder as it was before the interrupted save.
  void start_with(const std::vector<std::int64_t>& steps) {
    fs::remove_all(root_);
    for (const std::int64_t step : steps) save(step, 9);
  }
  bool holds(const CheckpointInfo& checkpoint, const State& wanted) {
    const State found = load_checkpoint(checkpoint, stream_);
    if (found.integers != wanted.integers || found.tensors.size() != wanted.tensors.size())
      return false;
    for (const auto& [name, tensor] : wanted.tensors) {
      if (std::memcmp(found.tensor(name).raw(), tensor.raw(), tensor.bytes()) != 0) return false;
    }
    return true;
  }
  /// Expects the newest checkpoint to be bit for bit one of `wanted` or, with `or_none`, absent.
  void expect_newest(const std::vector<State>& wanted, bool or_none = false) {
    const FoundCheckpoint found = find_newest_checkpoint(root_);
    EXPECT_TRUE(found.warnings.empty()) << found.warnings.front();
    if (!found.checkpoint) {
      EXPECT_TRUE(or_none) << "no checkpoint is left";
      return;
    }
    bool is_one = false;
    for (const State& state : wanted) is_one = is_one || holds(*found.checkpoint, state);
    EXPECT_TRUE(is_one) << "step " << found.checkpoint->step;
  }
  struct FailedSave {
    bool failed = false;
    int calls = 0;
  };
  /// Saves kNew, version 0.5, while call `at` fails.
  FailedSave save_failing_at(int at, int error, bool can_exchange) {
    FailedSave result;
    const FileFault fault({.at = at, .error = error, .only = {}, .can_exchange = can_exchange});
    try {
      save(kNew, 2, 0.5f);
    } catch (const IoError& problem) {
      result.failed = true;
      EXPECT_TRUE(contains(problem.what(), "cannot write the checkpoint of step 20"));
      EXPECT_TRUE(contains(problem.what(), std::strerror(error)));
    }
    result.calls = fault.calls();
    return result;
  }
  /// Expects that the next save succeeds and removes everything else.
  void expect_next_save() {
    save(kNext, 1);
    expect_newest({state(kNext)});
    int entries = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(root_)) ++entries;
    EXPECT_EQ(entries, 1);
  }

  TemporaryFolder folder_;
  std::string root_ = folder_ / "run/checkpoints";
  Stream stream_{MemoryPool::create("test")};
};

TEST_P(InterruptedSave, AtAnyCallLeavesOldOrNewCheckpoint) {
  for (const FileAction stop : kStops) {
    int at = 0;
    for (bool stopped = true; stopped; ++at) {
      SCOPED_TRACE(concat("stop ", static_cast<int>(stop), " at call ", at));
      start_with({5, kOld});
      stopped = is_stopped(at, stop, [&] { save(kNew, 2); });
      expect_newest({state(kOld), state(kNew)});
      if (!stopped) expect_newest({state(kNew)});
      expect_next_save();
      if (HasFailure()) return;
    }
    EXPECT_GT(at, 40);
  }
}

TEST_P(InterruptedSave, FirstCheckpointIsAbsentOrWhole) {
  for (const FileAction stop : kStops) {
    bool stopped = true;
    for (int at = 0; stopped; ++at) {
      SCOPED_TRACE(concat("stop ", static_cast<int>(stop), " at call ", at));
      fs::remove_all(folder_ / "run");
      stopped = is_stopped(at, stop, [&] { save(kNew, 2); });
      expect_newest({state(kNew)}, stopped);
      expect_next_save();
      if (HasFailure()) return;
    }
  }
}

TEST_P(InterruptedSave, OverExistingStepLeavesOldOrNew) {
  for (const FileAction stop : kStops) {
    bool stopped = true;
    for (int at = 0; stopped; ++at) {
      SCOPED_TRACE(concat("stop ", static_cast<int>(stop), " at call ", at));
      start_with({kNew});
      stopped = is_stopped(at, stop, [&] { save(kNew, 2, 0.5f); });
      expect_newest({state(kNew), state(kNew, 0.5f)});
      if (!stopped) expect_newest({state(kNew, 0.5f)});
      expect_next_save();
      if (HasFailure()) return;
    }
  }
}

TEST_P(InterruptedSave, PowerCutAfterSaveLosesNothing) {
  // The power is cut after the save, when the next file is created.
  fs::create_directory(folder_ / "run");
  int calls = 0;
  {
    const FileFault counter({});
    save(kOld, 2);
    calls = counter.calls();
  }
  start_with({});
  EXPECT_TRUE(is_stopped(calls, FileAction::kPowerCutWithNames, [&] {
    save(kOld, 2);
    fs::create_directory(folder_ / "later");
  }));
  expect_newest({state(kOld)});
}

TEST_P(InterruptedSave, FailedCallThrowsAndLeavesNoPartialSave) {
  struct Case {
    int error;
    std::vector<std::int64_t> steps;  // checkpoints that already exist
    bool can_exchange;
  };
  for (const Case& c : {Case{EIO, {5, kOld}, true}, Case{ENOSPC, {5, kOld}, true},
                        Case{EIO, {5, kNew}, true}, Case{EIO, {5, kNew}, false}}) {
    for (int at = 0;; ++at) {
      SCOPED_TRACE(concat(std::strerror(c.error), " over ", c.steps[1], " at call ", at));
      start_with(c.steps);
      const FailedSave result = save_failing_at(at, c.error, c.can_exchange);
      if (result.calls <= at) break;
      std::vector<State> wanted{state(kNew, 0.5f)};
      if (result.failed) {
        wanted.push_back(state(c.steps[1]));
        EXPECT_EQ(checkpoint_damage(read_checkpoint_info(root_ + "/step-0000000005")), "");
        // If the last fsync failed, a power cut may leave only the old checkpoint in the trash.
        for (const auto& entry : fs::directory_iterator(root_)) {
          const std::string name = entry.path().filename();
          EXPECT_TRUE(name.starts_with("step-") ||
                      (!c.can_exchange && name == ".trash-step-0000000020"))
              << name;
        }
      }
      expect_newest(wanted);
      expect_next_save();
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, InterruptedSave, ::testing::Values(1, 2));

}  // namespace
}  // namespace hybrid_trainer
