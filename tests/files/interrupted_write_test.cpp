#include <gtest/gtest.h>

#include <cerrno>

#include "hybrid_trainer/core/error.h"
#include "src/files/output_file.h"
#include "tests/support/faulty_files.h"
#include "tests/support/small_disk.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

class InterruptedWrite : public ::testing::Test {
 protected:
  void start() {
    fs::remove_all(folder_ / "files");
    fs::create_directory(folder_ / "files");
    write_text(path_, "old");
  }
  std::size_t files() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_ / "files")) ++count;
    return count;
  }
  TemporaryFolder folder_;
  std::string path_ = folder_ / "files/config.json";
};

TEST_F(InterruptedWrite, AtAnyCallLeavesOldOrNewFile) {
  for (const FileAction stop : kStops) {
    bool stopped = true;
    for (int at = 0; stopped; ++at) {
      SCOPED_TRACE(concat("stop ", static_cast<int>(stop), " at call ", at));
      start();
      stopped = is_stopped(at, stop, [&] { replace_file(path_, "new, longer"); });
      const std::string content = read_text(path_);
      EXPECT_TRUE(content == "new, longer" || (stopped && content == "old")) << content;
      replace_file(path_, "next");
      EXPECT_EQ(read_text(path_), "next");
    }
  }
}

TEST_F(InterruptedWrite, PowerCutAfterWriteLosesNothing) {
  start();
  int calls = 0;
  {
    const FileFault counter({});
    replace_file(path_, "new");
    calls = counter.calls();
  }
  start();
  EXPECT_TRUE(is_stopped(calls, FileAction::kPowerCutWithNames, [&] {
    replace_file(path_, "new");
    fs::create_directory(folder_ / "later");
  }));
  EXPECT_EQ(read_text(path_), "new");
}

/// The folder's files and its name in the parent folder are synced, and names of new parents.
TEST_F(InterruptedWrite, PowerCutKeepsCommittedFolder) {
  for (const auto existing : {OutputFolder::Existing::kRefuse, OutputFolder::Existing::kReplace}) {
    const std::string made =
        folder_ / (existing == OutputFolder::Existing::kRefuse ? "files/new/made" : "files/made");
    const auto make = [&](const char* content) {
      OutputFolder output(made, existing);
      write_text(output.create() / "a", content);
      output.commit();
    };
    start();
    if (existing == OutputFolder::Existing::kReplace) make("old");
    int calls = 0;
    {
      const FileFault counter({});
      make("new");
      calls = counter.calls();
    }
    start();
    if (existing == OutputFolder::Existing::kReplace) make("old");
    EXPECT_TRUE(is_stopped(calls, FileAction::kPowerCutWithNames, [&] {
      make("new");
      fs::create_directory(folder_ / "later");
    }));
    ASSERT_TRUE(fs::exists(made));
    EXPECT_EQ(read_text(made + "/a"), "new");
  }
}

/// The old folder is then moved aside, and restored if the second rename fails.
TEST_F(InterruptedWrite, ReplacesFolderWithoutExchangeSupport) {
  const fs::path made = folder_ / "files/made";
  const auto make = [&](const char* content) {
    OutputFolder output(made, OutputFolder::Existing::kReplace);
    write_text(output.create() / "a", content);
    output.commit();
  };
  int failures = 0;
  for (int at = 0;; ++at) {
    SCOPED_TRACE(at);
    start();
    make("old");
    bool failed = false;
    const FileFault fault(
        {.at = at, .error = EIO, .only = FileCall::kRename, .can_exchange = false});
    try {
      make("new");
    } catch (const IoError&) {
      failed = true;
    }
    ASSERT_TRUE(fs::exists(made / "a"));
    EXPECT_EQ(read_text(made / "a"), failed ? "old" : "new");
    EXPECT_EQ(files(), 2u) << "a temporary folder is left";
    failures += failed ? 1 : 0;
    if (fault.calls() <= at) break;
  }
  EXPECT_GE(failures, 3);
}

TEST_F(InterruptedWrite, FailedCallThrowsAndLeavesWholeFile) {
  for (int at = 0;; ++at) {
    SCOPED_TRACE(at);
    start();
    bool failed = false;
    {
      const FileFault fault({.at = at, .error = ENOSPC, .only = {}});
      try {
        replace_file(path_, "new, longer");
      } catch (const IoError& problem) {
        failed = true;
        EXPECT_TRUE(contains(problem.what(), "No space left"));
      }
      if (fault.calls() <= at) break;
    }
    const std::string content = read_text(path_);
    EXPECT_TRUE(content == "new, longer" || (failed && content == "old")) << content;
    EXPECT_EQ(files(), 1u);
  }
}

TEST(ReplaceFile, FullDiskKeepsOldFile) {
  const TemporaryFolder folder;
  const std::string ballast = folder / "ballast";
  const std::string reason = run_on_small_disk(folder.path(), std::size_t{4} << 20, [&] {
    const std::string path = folder / "config.json";
    replace_file(path, "old");
    fill_disk(ballast);
    const std::string message = message_of<IoError>([&] { replace_file(path, "new"); });
    EXPECT_TRUE(contains(message, "No space left"));
    EXPECT_EQ(read_text(path), "old");
    fs::remove(ballast);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
    replace_file(path, "new");
    EXPECT_EQ(read_text(path), "new");
  });
  if (!reason.empty()) GTEST_SKIP() << reason;
}

}  // namespace
}  // namespace hybrid_trainer
