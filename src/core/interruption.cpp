#include "hybrid_trainer/core/interruption.h"

#include <pthread.h>
#include <unistd.h>
#include <atomic>
#include <list>

#include "hybrid_trainer/core/error.h"
#include "src/core/process.h"
#include "src/core/threads.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kOneRequest = 1'000'000'000;  // nanoseconds that count as one request

std::atomic<std::int64_t> first_request = 0;  // time in nanoseconds; 0: none yet
std::atomic<bool> first_ends = false;         // the first signal ends the process
std::atomic<const std::string*> final_text = nullptr;
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a signal handler takes no lock");

extern "C" void take_signal(int signal) {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const std::int64_t now = time.tv_sec * kOneRequest + time.tv_nsec;
  std::int64_t first = 0;
  const bool is_first = first_request.compare_exchange_strong(first, now);
  if (is_first ? !first_ends : now - first < kOneRequest || is_sent_repeatedly(signal)) return;
  const std::string& text = *final_text;
  const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  static_cast<void>(written);
  end_process(static_cast<int>(ExitCode::kInterrupted));
}

sigset_t signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kStopSignals) sigaddset(&set, signal);
  return set;
}

}  // namespace

/// Receives the signals in a thread that does not compute: oneDNN's products move the stack pointer
/// into the heap, where the frame of a handler would overwrite live data.
class Interruption::Receiver {
 public:
  Receiver(bool ends_immediately, std::string final_message) {
    first_request = 0;
    first_ends = ends_immediately;
    set_final_message(std::move(final_message));
    struct sigaction action {};
    action.sa_handler = take_signal;
    action.sa_mask = signals();  // prevents handlers from interrupting each other
    for (std::size_t i = 0; i < std::size(kStopSignals); ++i) {
      sigaction(kStopSignals[i], nullptr, &before_[i]);
      const bool is_nohup = kStopSignals[i] == SIGHUP && before_[i].sa_handler == SIG_IGN;
      if (!is_nohup) sigaction(kStopSignals[i], &action, nullptr);
    }
    const sigset_t left = signals();  // blocked before the thread starts, which inherits the mask
    pthread_sigmask(SIG_BLOCK, &left, &mask_before_);
    thread_ = start_thread([] {
      return std::jthread([](const std::stop_token& stop) {
        const sigset_t taken = signals();
        pthread_sigmask(SIG_UNBLOCK, &taken, nullptr);
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any().wait(lock, stop, [] { return false; });
      });
    });
  }
  ~Receiver() {
    thread_ = {};
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
    for (std::size_t i = 0; i < std::size(kStopSignals); ++i)
      sigaction(kStopSignals[i], &before_[i], nullptr);
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  void finish_steps_first(std::string final_message) {
    set_final_message(std::move(final_message));
    first_ends = false;
  }

 private:
  void set_final_message(std::string text) {
    if (!text.empty()) text += '\n';
    final_text = &final_messages_.emplace_back(std::move(text));
  }

  std::list<std::string> final_messages_;  // a handler may still be reading earlier elements
  struct sigaction before_[std::size(kStopSignals)]{};
  sigset_t mask_before_{};
  std::jthread thread_;
};

Interruption::Interruption() : receiver_(std::make_unique<Receiver>(false, "")) {}

Interruption::Interruption(std::string final_message)
    : receiver_(std::make_unique<Receiver>(true, std::move(final_message))) {}

Interruption::~Interruption() = default;

bool Interruption::requested() const { return first_request > 0; }

void Interruption::finish_steps_first(std::string final_message) const {
  receiver_->finish_steps_first(std::move(final_message));
}

}  // namespace hybrid_trainer
