#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "src/files/checkpoint.h"
#include "tests/support/faulty_files.h"
#include "tests/support/small_disk.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kDiskBytes = std::size_t{4} << 20;

/// Tests on a real but very small disk. Skipped on systems without namespaces.
class FullDisk : public ::testing::Test {
 protected:
  State state(std::int64_t step) {
    State result;
    result.integers["step"] = step;
    for (const char* name : {"model.weight", "optimizer.weight.m", "predictor.history"}) {
      const Tensor tensor = Tensor::empty({30'000}, DType::kF32, MemoryKind::kParameters, stream_);
      std::fill_n(tensor.data<float>(), tensor.elements(), static_cast<float>(step));
      result.tensors[name] = tensor;
    }
    return result;
  }
  void save(std::int64_t step, std::int64_t keep = 3) {
    save_checkpoint(root_, step, {state(step)}, {keep, ""});
  }
  /// Saves step 20 while another program fills the disk at file call `at`. Returns the error
  /// message, "" if it saved, or nothing if there is no such call.
  std::optional<std::string> save_while_filling(int at) {
    const FileFault other(
        {.at = at, .error = 0, .only = {}, .action = FileAction::kMeanwhile, .meanwhile = [&] {
           fill_disk(ballast_);
         }});
    std::string message;
    try {
      save(20);
    } catch (const IoError& problem) {
      message = problem.what();
    }
    if (other.calls() <= at) return {};
    return message;
  }
  std::vector<std::string> names() {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(root_))
      found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }
  /// Expects that the newest checkpoint is an unchanged one of `step`.
  void expect_newest(std::int64_t step) {
    const FoundCheckpoint found = find_newest_checkpoint(root_);
    ASSERT_TRUE(found.checkpoint);
    EXPECT_EQ(found.checkpoint->step, step);
    const State loaded = load_checkpoint(*found.checkpoint, stream_);
    for (const auto& [name, tensor] : state(step).tensors)
      EXPECT_EQ(std::memcmp(loaded.tensor(name).raw(), tensor.raw(), tensor.bytes()), 0) << name;
  }
  void expect_old_checkpoints_at_any_call();

  TemporaryFolder folder_;
  std::string root_ = folder_ / "checkpoints", ballast_ = folder_ / "ballast";
  Stream stream_{MemoryPool::create("test")};
};

void FullDisk::expect_old_checkpoints_at_any_call() {
  int failures = 0;
  for (int at = 0; !HasFailure(); ++at) {
    SCOPED_TRACE(at);
    fs::remove_all(root_);
    save(5);
    save(10);
    const auto message = save_while_filling(at);
    if (!message) break;
    if (!message->empty()) {
      ++failures;
      EXPECT_TRUE(contains(*message, "cannot write the checkpoint of step 20"));
      EXPECT_TRUE(contains(*message, "o space left"));
      EXPECT_EQ(names(), (std::vector<std::string>{"step-0000000005", "step-0000000010"}));
    }
    expect_newest(message->empty() ? 20 : 10);
    fs::remove(ballast_);
    save(30, 1);
    expect_newest(30);
    EXPECT_EQ(names(), std::vector<std::string>{"step-0000000030"});
  }
  EXPECT_GT(failures, 10);
}

TEST_F(FullDisk, DuringSaveKeepsOldCheckpoints) {
  const std::string reason =
      run_on_small_disk(folder_.path(), kDiskBytes, [&] { expect_old_checkpoints_at_any_call(); });
  if (!reason.empty()) GTEST_SKIP() << reason;
}

TEST_F(FullDisk, OversizedStateKeepsOldCheckpoints) {
  const std::string reason = run_on_small_disk(folder_.path(), kDiskBytes, [&] {
    save(10);
    State large = state(20);
    large.texts["history"] = std::string(2 * kDiskBytes, 'x');
    const std::string message =
        message_of<IoError>([&] { save_checkpoint(root_, 20, {large}, {}); });
    EXPECT_TRUE(contains(message, "state.bin: writing failed: No space left"));
    EXPECT_EQ(names(), std::vector<std::string>{"step-0000000010"});
    expect_newest(10);
    save(20);
    expect_newest(20);
  });
  if (!reason.empty()) GTEST_SKIP() << reason;
}

}  // namespace
}  // namespace hybrid_trainer
