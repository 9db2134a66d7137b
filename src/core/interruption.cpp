#include "hybrid_trainer/core/interruption.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

std::atomic<int> requests = 0;  // asked for by other threads than the handler's
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler takes no lock");

extern "C" void count_request(int) {
  if (++requests > 1) _exit(static_cast<int>(ExitCode::kInterrupted));
}

sigset_t signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kSignals) sigaddset(&set, signal);
  return set;
}

}  // namespace

/// A thread that computes nothing takes the signals: oneDNN's products move the stack pointer into
/// the heap, where the frame of a handler would overwrite what lies below.
class Interruption::Receiver {
 public:
  Receiver() {
    requests = 0;
    struct sigaction action {};
    action.sa_handler = count_request;
    for (std::size_t i = 0; i < std::size(kSignals); ++i)
      sigaction(kSignals[i], &action, &before_[i]);
    thread_ = std::jthread([](const std::stop_token& stop) {
      const sigset_t taken = signals();
      pthread_sigmask(SIG_UNBLOCK, &taken, nullptr);
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any().wait(lock, stop, [] { return false; });
    });
    const sigset_t left = signals();
    pthread_sigmask(SIG_BLOCK, &left, &mask_before_);
  }
  ~Receiver() {
    thread_ = {};
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
    for (std::size_t i = 0; i < std::size(kSignals); ++i)
      sigaction(kSignals[i], &before_[i], nullptr);
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

 private:
  struct sigaction before_[std::size(kSignals)]{};
  sigset_t mask_before_{};
  std::jthread thread_;
};

Interruption::Interruption() : receiver_(std::make_unique<Receiver>()) {}

Interruption::~Interruption() = default;

bool Interruption::requested() const { return requests > 0; }

}  // namespace hybrid_trainer
