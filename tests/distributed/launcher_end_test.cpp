#include "src/distributed/host_ranks.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hybrid_trainer {
namespace {

using namespace std::chrono_literals;

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  int& reader() { return ends[0]; }
  int& writer() { return ends[1]; }
  static void close(int& end) { ::close(std::exchange(end, -1)); }
  /// Waits until no process can write to the pipe any more.
  void wait_for_end() {
    close(writer());
    char byte;
    while (::read(reader(), &byte, 1) > 0) continue;
  }
  int ends[2] = {-1, -1};
};

/// Starts a launcher of this name whose only rank asks for the launcher's end and then exits. The
/// launcher exits when `orders` is closed, and keeps no end of `output` open.
pid_t launch(const char* name, std::chrono::milliseconds patience, Pipe& output, Pipe& orders) {
  const pid_t launcher = ::fork();
  if (launcher != 0) return launcher;
  ::prctl(PR_SET_NAME, name);
  Pipe::close(orders.writer());
  if (::fork() == 0) {
    end_launcher_after(patience);
    ::_exit(0);
  }
  Pipe::close(output.writer());
  orders.wait_for_end();
  ::_exit(7);
}

int status_of(pid_t launcher) {
  int status = 0;
  EXPECT_EQ(::waitpid(launcher, &status, 0), launcher);
  return status;
}

TEST(LauncherEnd, KillsLauncherThatDoesNotEnd) {
  Pipe output, orders;
  const int status = status_of(launch("mpirun", 10ms, output, orders));
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST(LauncherEnd, DoesNotKillLauncherThatEnds) {
  Pipe output, orders;
  const pid_t launcher = launch("mpirun", 1h, output, orders);
  output.wait_for_end();  // the waiting process does not keep it open
  Pipe::close(orders.writer());
  const int status = status_of(launcher);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(LauncherEnd, AppliesOnlyToOpenMpiLaunchers) {
  EXPECT_TRUE(is_open_mpi_launcher("orted"));
  EXPECT_FALSE(is_open_mpi_launcher("slurmstepd"));
  Pipe output, orders;
  const pid_t launcher = launch("bash", 0ms, output, orders);
  output.wait_for_end();
  Pipe::close(orders.writer());
  EXPECT_TRUE(WIFEXITED(status_of(launcher)));
}

}  // namespace
}  // namespace hybrid_trainer
