#include "src/distributed/launcher_end.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

std::string name_of_process(pid_t process) {
  std::string name;
  std::getline(std::ifstream(concat("/proc/", process, "/comm")) >> std::ws, name);
  return name;
}

/// In the child of a process with threads, where only plain system calls are allowed. What else is
/// open it closes: its launcher waits for the ends of pipes.
[[noreturn]] void wait_and_kill(int launcher, int milliseconds) {
  ::setsid();
  if (launcher > 0) ::close_range(0, static_cast<unsigned>(launcher) - 1, 0);
  ::close_range(static_cast<unsigned>(launcher) + 1, UINT_MAX, 0);
  pollfd end{.fd = launcher, .events = POLLIN, .revents = 0};
  if (::poll(&end, 1, milliseconds) == 0)
    ::syscall(SYS_pidfd_send_signal, launcher, SIGKILL, nullptr, 0);
  ::_exit(0);
}

}  // namespace

bool is_open_mpi_launcher(const std::string& process_name) {
  constexpr const char* kNames[] = {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted"};
  return std::find(std::begin(kNames), std::end(kNames), process_name) != std::end(kNames);
}

void end_launcher_after(std::chrono::milliseconds patience) {
  const pid_t parent = ::getppid();
  if (!is_open_mpi_launcher(name_of_process(parent))) return;
  const auto launcher = static_cast<int>(::syscall(SYS_pidfd_open, parent, 0));
  if (launcher < 0) return;
  if (::getppid() == parent && ::fork() == 0)
    wait_and_kill(launcher, static_cast<int>(patience.count()));
  ::close(launcher);
}

}  // namespace hybrid_trainer
