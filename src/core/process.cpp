#include "src/core/process.h"

#include <signal.h>
#include <unistd.h>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace hybrid_trainer {

namespace {

/// Maximum number of registered paths. A forked child has none: it must not remove its parent's.
constexpr int kMaxPaths = 16;
std::atomic<char*> paths[kMaxPaths];
std::atomic<pid_t> owner = 0;

void remove_paths() {
  if (owner != getpid()) return;
  for (int i = kMaxPaths - 1; i >= 0; --i) {  // removes folders after their contents
    const char* const path = paths[i].exchange(nullptr);
    if (path != nullptr && unlink(path) != 0) rmdir(path);
  }
}

/// Ends the process by the default action, so that a shell sees the signal; process 1 exits.
extern "C" void end_by_signal(int signal) {
  remove_paths();
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  sigaction(signal, &by_default, nullptr);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  raise(signal);
  _exit(128 + signal);
}

std::atomic<std::uint64_t> pieces = 0;

}  // namespace

void end_on_signals() {
  // Handlers use a separate stack, because oneDNN's products move the stack pointer into the heap.
  constexpr std::size_t kStack = std::size_t{1} << 16;
  static char stack[kStack];
  const stack_t own{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  sigaltstack(&own, nullptr);
  std::atexit(remove_paths);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) {
    struct sigaction before {
    }, action{};
    sigaction(signal, nullptr, &before);
    const bool is_of_container = getpid() == 1 && (signal == SIGINT || signal == SIGTERM);
    if (before.sa_handler != SIG_DFL && !is_of_container) continue;
    action.sa_handler = end_by_signal;
    action.sa_flags = SA_ONSTACK;
    sigaction(signal, &action, nullptr);
  }
}

void end_process(int exit_code) {
  remove_paths();
  _exit(exit_code);
}

TemporaryPath::TemporaryPath(const std::filesystem::path& path) {
  char* const text = strdup(std::filesystem::absolute(path).c_str());
  if (owner.exchange(getpid()) != getpid())  // a forked child inherits its parent's list
    for (std::atomic<char*>& place : paths) place = nullptr;
  for (int i = 0; i < kMaxPaths && place_ < 0; ++i) {
    char* none = nullptr;
    if (paths[i].compare_exchange_strong(none, text)) place_ = i;
  }
  if (place_ < 0) std::free(text);
}

TemporaryPath::~TemporaryPath() {
  if (place_ >= 0) std::free(paths[place_].exchange(nullptr));
}

void count_progress() noexcept { pieces.fetch_add(1, std::memory_order_relaxed); }
std::uint64_t progress_so_far() noexcept { return pieces.load(std::memory_order_relaxed); }

}  // namespace hybrid_trainer
