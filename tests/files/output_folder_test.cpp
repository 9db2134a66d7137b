#include "hybrid_trainer/files/output_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "hybrid_trainer/core/error.h"
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
  TemporaryTestFolder folder_;
  std::string path_ = folder_ / "made";
};

TEST_F(OutputFolderTest, AppearsWithItsCommit) {
  OutputFolder output(path_ + "/", Existing::kRefuse);
  write_bytes(output.create() / "a", "x");
  EXPECT_FALSE(fs::exists(path_));
  output.commit();
  EXPECT_EQ(read_bytes(path_ + "/a"), "x");
  EXPECT_EQ(entries(), 1);
}

TEST_F(OutputFolderTest, LeavesNothingWithoutACommit) {
  { write_bytes(OutputFolder(path_, Existing::kRefuse).create() / "a", "x"); }
  EXPECT_EQ(entries(), 0);
}

TEST_F(OutputFolderTest, ReplacesAFolderOnlyWhereItIsTold) {
  {
    OutputFolder late(path_, Existing::kRefuse);
    late.create();
    fs::create_directory(path_);
    write_bytes(path_ + "/old", "x");
    EXPECT_THROW(late.commit(), CannotCreate);
  }
  EXPECT_THROW(OutputFolder(path_, Existing::kRefuse).create(), CannotCreate);
  EXPECT_EQ(read_bytes(path_ + "/old"), "x");
  OutputFolder output(path_, Existing::kReplace);
  write_bytes(output.create() / "new", "x");
  output.commit();
  EXPECT_FALSE(fs::exists(path_ + "/old"));
  EXPECT_TRUE(fs::exists(path_ + "/new"));
  EXPECT_EQ(entries(), 1);
}

TEST_F(OutputFolderTest, GoesWhereALinkPoints) {
  fs::create_directory(folder_ / "real");
  fs::create_directory_symlink(folder_ / "real", path_);
  OutputFolder output(path_, Existing::kRefuse);
  write_bytes(output.create() / "a", "x");
  output.commit();
  EXPECT_EQ(read_bytes(folder_ / "real/a"), "x");
  EXPECT_TRUE(fs::is_symlink(path_));
}

TEST_F(OutputFolderTest, RemovesWhatEndedProcessesLeft) {
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
  const auto partial = [&](pid_t process) {
    return folder_ / (".made.partial-" + std::to_string(process));
  };
  fs::create_directory(partial(ended));
  fs::create_directory(partial(::getppid()));
  OutputFolder(path_, Existing::kRefuse).create();
  EXPECT_FALSE(fs::exists(partial(ended)));
  EXPECT_TRUE(fs::exists(partial(::getppid())));
}

TEST_F(OutputFolderTest, RemovesAReplacedFolderOnlyWhereItsSuccessorIsInPlace) {
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
  const fs::path old = folder_ / (".made.old-" + std::to_string(ended));
  fs::create_directory(old);
  OutputFolder(path_, Existing::kReplace).create();
  EXPECT_TRUE(fs::exists(old)) << "it holds the only data";
  fs::create_directory(path_);
  OutputFolder(path_, Existing::kReplace).create();
  EXPECT_FALSE(fs::exists(old));
}

}  // namespace
}  // namespace hybrid_trainer
