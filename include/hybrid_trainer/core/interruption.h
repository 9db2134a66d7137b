#pragma once

#include <csignal>
#include <memory>
#include <string>

namespace hybrid_trainer {

/// Signals that ask a run to stop.
inline constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

/// Returns whether a launcher or the CPU time limit sends the signal repeatedly.
inline bool is_sent_repeatedly(int stop_signal) {
  return stop_signal == SIGUSR1 || stop_signal == SIGUSR2 || stop_signal == SIGXCPU;
}

/// Handles stop signals during its lifetime. The first SIGINT, SIGTERM or SIGHUP requests a stop
/// after the current step; another one more than a second later ends the process with exit code
/// 130. Signals within that second count as one, since `timeout` signals its child and then the
/// child's process group. SIGUSR1 (sent by `--ranks` to all ranks), SIGUSR2 and SIGXCPU only
/// request a stop, however often they arrive. Signals that were ignored before, for example in a
/// script's background job, are handled too, except an ignored SIGHUP, so that nohup works. The
/// constructing thread and the threads it starts block these signals, so construct this object
/// before you start compute threads. At most one instance may exist.
class Interruption {
 public:
  Interruption();
  /// Makes the first signal end the process immediately and write `final_message` to standard
  /// error, until finish_steps_first() is called. Used while the program has nothing to save yet.
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
