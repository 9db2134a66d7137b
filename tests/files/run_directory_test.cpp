#include "hybrid_trainer/files/run_directory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "hybrid_trainer/core/error.h"
#include "src/files/output_file.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

class Run : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string root_ = folder_ / "runs/first";
};

TEST_F(Run, CreatesParentFolders) {
  const RunDirectory run(root_, RunMode::kNew);
  EXPECT_FALSE(run.resumes());
  EXPECT_TRUE(fs::is_directory(root_));
  EXPECT_EQ(run.paths().metrics(), root_ + "/metrics.jsonl");
}

TEST_F(Run, ExistingRunRequiresResume) {
  { replace_file(RunDirectory(root_, RunMode::kNew).paths().config(), "{}"); }
  const std::string message = message_of<CannotCreate>([&] { RunDirectory(root_, RunMode::kNew); });
  EXPECT_TRUE(contains(message, "--resume"));
  EXPECT_TRUE(contains(message, root_));
  EXPECT_TRUE(RunDirectory(root_, RunMode::kResume).resumes());
  EXPECT_EQ(existing_run(root_).config(), root_ + "/config.json");
}

TEST_F(Run, ResumeOfMissingRunStartsNewRun) {
  EXPECT_FALSE(RunDirectory(root_, RunMode::kResume).resumes());
}

TEST_F(Run, RestartsIfKilledBeforeConfig) {
  fs::create_directories(root_);
  write_text(root_ + "/.lock", "1");
  write_text(root_ + "/.tmp-config.json-1", "{");
  EXPECT_FALSE(RunDirectory(root_, RunMode::kNew).resumes());
}

TEST_F(Run, RestartsIfKilledDuringPreparation) {
  fs::create_directories(root_);
  for (const char* name : {"base.json", "answers.json", "reference.bin"}) {
    write_text(root_ + "/" + name, "1");
    EXPECT_FALSE(RunPaths{root_}.contains_start());
    EXPECT_THROW(RunDirectory(root_, RunMode::kNew), CannotCreate)
        << "a user's folder, since it has no lock";
    write_text(root_ + "/.lock", "1");
    EXPECT_TRUE(RunPaths{root_}.contains_start());
    EXPECT_TRUE(
        contains(message_of<MissingInput>([&] { existing_run(root_); }), "complete command"));
    for (RunMode mode : {RunMode::kNew, RunMode::kResume})
      EXPECT_FALSE(RunDirectory(root_, mode).resumes());
    fs::remove(root_ + "/.lock");
    fs::remove(root_ + "/" + name);
  }
}

TEST_F(Run, RejectsFolderWithOtherFiles) {
  fs::create_directories(root_);
  write_text(root_ + "/config.json", "{}");  // perhaps of a Hugging Face model
  for (RunMode mode : {RunMode::kNew, RunMode::kResume}) {
    EXPECT_TRUE(
        contains(message_of<CannotCreate>([&] { RunDirectory(root_, mode); }), "config.json"));
  }
  EXPECT_FALSE(fs::exists(root_ + "/.lock"));
  EXPECT_THROW(existing_run(root_), MissingInput);
  EXPECT_THROW(existing_run(folder_ / "absent"), MissingInput);
}

TEST_F(Run, RejectsFilePath) {
  write_text(folder_ / "file", "x");
  EXPECT_THROW(RunDirectory(folder_ / "file", RunMode::kNew), CannotCreate);
  EXPECT_THROW(RunDirectory(folder_ / "file/below", RunMode::kNew), CannotCreate);
}

TEST_F(Run, LocksOutOtherProcesses) {
  int ready[2], done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RunDirectory run(root_, RunMode::kNew);
    char byte = 'x';
    const bool told = ::write(ready[1], &byte, 1) == 1 && ::read(done[0], &byte, 1) == 1;
    ::_exit(told ? 0 : 1);
  }
  char byte = 'x';
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const std::string message = message_of<InUse>([&] { RunDirectory(root_, RunMode::kResume); });
  EXPECT_TRUE(contains(message, concat("process ", child, ";")));
  EXPECT_FALSE(holder_has_exited(root_ + "/.lock"));
  EXPECT_EQ(::write(done[1], &byte, 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(process_of_lock(root_ + "/.lock"), std::to_string(child));
  EXPECT_TRUE(holder_has_exited(root_ + "/.lock"));
  EXPECT_NO_THROW(RunDirectory(root_, RunMode::kResume));  // the lock ends with its process
  for (int end : {ready[0], ready[1], done[0], done[1]}) ::close(end);
}

TEST_F(Run, MoveKeepsLock) {
  RunDirectory first(root_, RunMode::kNew);
  const RunDirectory second(std::move(first));
  EXPECT_THROW(RunDirectory(root_, RunMode::kNew), InUse);
}

TEST_F(Run, LeavesNothingWithoutWrites) {
  { const RunDirectory refused(root_, RunMode::kNew); }
  EXPECT_FALSE(fs::exists(root_));
  fs::create_directories(root_);
  { const RunDirectory refused(root_, RunMode::kNew); }
  EXPECT_TRUE(fs::is_empty(root_));
  {
    const RunDirectory begun(root_, RunMode::kNew);
    write_text(begun.paths().config(), "{}");
  }
  EXPECT_TRUE(existing_run(root_).contains_run());
}

TEST_F(Run, RemovedLockDoesNotBlockOthers) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    {
      const RunDirectory run(root_, RunMode::kNew);
      char byte = 'x';
      if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
      ::usleep(20000);
    }
    ::_exit(0);
  }
  char byte = 'x';
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  int status = -1;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    try {
      const RunDirectory run(root_, RunMode::kNew);
      EXPECT_TRUE(fs::exists(run.paths().lock()));
    } catch (const InUse&) {
    } catch (const CannotCreate&) {  // the folder was removed between the two calls
    }
  }
  EXPECT_EQ(status, 0);
  const RunDirectory after(root_, RunMode::kNew);
  EXPECT_TRUE(fs::exists(after.paths().lock()));
  for (int end : ready) ::close(end);
}

}  // namespace
}  // namespace hybrid_trainer
