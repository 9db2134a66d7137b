#include "src/files/output_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "hybrid_trainer/core/error.h"
#include "src/core/machine.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;
using Existing = OutputFolder::Existing;

class OutputFolderTest : public ::testing::Test {
 protected:
  std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(folder_.path()), {});
  }
  TemporaryFolder folder_;
  std::string path_ = folder_ / "made";
};

TEST_F(OutputFolderTest, AppearsOnCommit) {
  OutputFolder output(path_ + "/", Existing::kRefuse);
  write_text(output.create() / "a", "x");
  EXPECT_FALSE(fs::exists(path_));
  output.commit();
  EXPECT_EQ(read_text(path_ + "/a"), "x");
  EXPECT_EQ(entries(), 1);
}

TEST_F(OutputFolderTest, LeavesNothingWithoutCommit) {
  { write_text(OutputFolder(path_, Existing::kRefuse).create() / "a", "x"); }
  EXPECT_EQ(entries(), 0);
}

TEST_F(OutputFolderTest, ReplacesFolderOnlyOnRequest) {
  {
    OutputFolder late(path_, Existing::kRefuse);
    late.create();
    fs::create_directory(path_);
    write_text(path_ + "/old", "x");
    EXPECT_THROW(late.commit(), CannotCreate);
  }
  EXPECT_THROW(OutputFolder(path_, Existing::kRefuse).create(), CannotCreate);
  EXPECT_EQ(read_text(path_ + "/old"), "x");
  OutputFolder output(path_, Existing::kReplace);
  write_text(output.create() / "new", "x");
  output.commit();
  EXPECT_FALSE(fs::exists(path_ + "/old"));
  EXPECT_TRUE(fs::exists(path_ + "/new"));
  EXPECT_EQ(entries(), 1);
}

TEST_F(OutputFolderTest, FollowsFolderLink) {
  fs::create_directory(folder_ / "real");
  fs::create_directory_symlink(folder_ / "real", path_);
  OutputFolder output(path_, Existing::kRefuse);
  write_text(output.create() / "a", "x");
  output.commit();
  EXPECT_EQ(read_text(folder_ / "real/a"), "x");
  EXPECT_TRUE(fs::is_symlink(path_));
}

/// The only hidden folder left by a process that ends before it commits.
fs::path left_over(const TemporaryFolder& folder, const std::string& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    OutputFolder output(path, Existing::kReplace);
    write_text(output.create() / "a", "x");
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.path()))
    if (entry.path().filename().string().starts_with(".made.")) return entry.path();
  return {};
}

TEST_F(OutputFolderTest, RemovesLeftoversOfEndedProcesses) {
  const fs::path left = left_over(folder_, path_);
  ASSERT_TRUE(fs::exists(left / "a"));
  OutputFolder running(path_, Existing::kRefuse);
  const fs::path own = running.create();
  EXPECT_FALSE(fs::exists(left));
  OutputFolder(path_, Existing::kRefuse).create();
  EXPECT_TRUE(fs::exists(own)) << "its process is still running";
}

/// A process id is meaningless on another host, in another container, or after a reboot.
TEST_F(OutputFolderTest, RemovesOnlyLeftoversOfOwnHost) {
  const std::string left = left_over(folder_, path_).string(), host = host_name();
  const std::size_t begin = left.rfind(host);
  ASSERT_NE(begin, left.npos);
  const std::string foreign =
      left.substr(0, begin) + "elsewhere" + left.substr(begin + host.size());
  fs::rename(left, foreign);
  OutputFolder(path_, Existing::kRefuse).create();
  EXPECT_TRUE(fs::exists(foreign)) << "its process may still be running";
  const std::size_t boot = begin + host.size() + 1;
  const std::string restarted = left.substr(0, boot) + "before" + left.substr(left.find('-', boot));
  fs::rename(foreign, restarted);
  OutputFolder(path_, Existing::kRefuse).create();
  EXPECT_FALSE(fs::exists(restarted)) << "the system has rebooted since";
}

TEST_F(OutputFolderTest, RemovesOldFolderOnlyIfReplacementExists) {
  const std::string left = left_over(folder_, path_).string();
  const std::string old = std::string(left).replace(left.rfind("partial-"), 7, "old");
  fs::rename(left, old);
  OutputFolder(path_, Existing::kReplace).create();
  EXPECT_TRUE(fs::exists(old)) << "it contains the only data";
  fs::create_directory(path_);
  OutputFolder(path_, Existing::kReplace).create();
  EXPECT_FALSE(fs::exists(old));
}

}  // namespace
}  // namespace hybrid_trainer
