#pragma once

#include <csignal>
#include <memory>
#include <string>

namespace hybrid_trainer {

inline constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

/// Returns whether a launcher or the CPU time limit sends the signal repeatedly.
inline bool is_sent_repeatedly(int stop_signal) {
  return stop_signal == SIGUSR1 || stop_signal == SIGUSR2 || stop_signal == SIGXCPU;
}

/// Handles stop signals during its lifetime. The first SIGINT, SIGTERM or SIGHUP requests a stop
/// after the current step. A second one ends the process with exit code 130. Signals less than a
/// second after the first are ignored, since `timeout` signals both its child and the child's
/// process group. SIGUSR1 (sent by `--ranks` to all ranks), SIGUSR2 and SIGXCPU only request a
/// stop, however often they arrive. Signals that the parent process ignored, as in a script's
/// background job, are handled too. The exception is SIGHUP, so that nohup works. The constructing
/// thread and the threads it starts block these signals, so construct this object before you start
/// compute threads. At most one instance may exist.
class Interruption {
 public:
  Interruption();
  /// Starts to handle signals. Until finish_steps_first(), the first signal writes `final_message`
  /// and ends the process.
  explicit Interruption(std::string final_message);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  bool requested() const;
  /// Makes the first signal request a stop from now on. If a later signal ends the process, it
  /// writes `final_message`.
  void finish_steps_first(std::string final_message) const;

 private:
  class Receiver;
  std::unique_ptr<Receiver> receiver_;
};

}  // namespace hybrid_trainer
