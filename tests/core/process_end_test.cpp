#include "src/core/process.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

/// The wait status of a child that runs `child_does`.
int status_of(const std::function<void()>& child_does) {
  const pid_t child = fork();
  if (child == 0) {
    child_does();
    _exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

class ProcessEnd : public ::testing::Test {
 protected:
  /// A function that makes a temporary file and then calls `ends`, which ends the process.
  std::function<void()> with_file(const std::function<void()>& ends) const {
    return [this, ends] {
      end_on_signals();
      write_text(file_, "secret");
      const TemporaryPath removed(file_);
      ends();
    };
  }
  const TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_ / "spool";
};

TEST_F(ProcessEnd, SignalRemovesTemporaryFilesAndSetsStatus) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) {
    const int status = status_of(with_file([&] { raise(signal); }));
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << signal;
    EXPECT_FALSE(std::filesystem::exists(file_)) << signal;
  }
}

TEST_F(ProcessEnd, ExitRemovesTemporaryFiles) {
  EXPECT_EQ(WEXITSTATUS(status_of(with_file([] { end_process(3); }))), 3);
  EXPECT_FALSE(std::filesystem::exists(file_));
#ifndef __SANITIZE_ADDRESS__  // it reports leaks of threads that a forked child has lost
  EXPECT_EQ(WEXITSTATUS(status_of(with_file([] { std::exit(4); }))), 4);
  EXPECT_FALSE(std::filesystem::exists(file_));
#endif
}

TEST_F(ProcessEnd, RemovesFileBeforeItsFolder) {
  const std::filesystem::path inner = folder_ / "made";
  status_of([&] {
    end_on_signals();
    std::filesystem::create_directory(inner);
    const TemporaryPath made(inner);
    write_text(inner / "file", "x");
    const TemporaryPath file(inner / "file");
    raise(SIGTERM);
  });
  EXPECT_FALSE(std::filesystem::exists(inner));
}

TEST_F(ProcessEnd, ForkedChildKeepsParentFiles) {
  const int status = status_of(with_file([&] {
    status_of([] { raise(SIGTERM); });
    status_of([&] {
      const TemporaryPath own(folder_ / "other");
      raise(SIGTERM);
    });
    _exit(std::filesystem::exists(file_) ? 0 : 1);
  }));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(ProcessEnd, IgnoredSignalsStayIgnored) {
  const int status = status_of([] {
    signal(SIGINT, SIG_IGN);
    end_on_signals();
    raise(SIGINT);
  });
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

// The kernel applies no default signal actions to the first process of a PID namespace.
TEST_F(ProcessEnd, FirstProcessOfContainerEndsOnSignal) {
  const int status = status_of([&] {
    if (unshare(CLONE_NEWPID) != 0) _exit(99);
    const int value_of_first = status_of([] {
      signal(SIGINT, SIG_IGN);  // like a background job of a script
      end_on_signals();
      raise(SIGINT);
    });
    _exit(WEXITSTATUS(value_of_first));
  });
  if (WEXITSTATUS(status) == 99) GTEST_SKIP() << "needs root";
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
}

}  // namespace
}  // namespace hybrid_trainer
