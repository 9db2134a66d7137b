#pragma once

#include <csignal>
#include <memory>
#include <string>

namespace hybrid_trainer {

/// Signals that ask a run to stop.
inline constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

/// Whether a launcher, or the limit of processor time, sends the signal repeatedly.
inline bool is_sent_repeatedly(int stop_signal) {
  return stop_signal == SIGUSR1 || stop_signal == SIGUSR2 || stop_signal == SIGXCPU;
}

/// While one exists, the first SIGINT, SIGTERM or SIGHUP (the terminal is gone) asks for a stop after the current step. Another one
/// more than a second later ends the process at once with exit code 130. Signals within that second
/// count as one: `timeout` signals its child and then the child's group. SIGUSR1, by which `--ranks`
/// asks all ranks, SIGUSR2 and SIGXCPU ask however often they come. All of this, but for SIGHUP, which nohup ignores, holds also where
/// the signals were ignored before, as in a script's background. The thread that made it, and those
/// it starts, block these signals: make it before threads that compute. At most one at a time.
class Interruption {
 public:
  Interruption();
  /// Until let_steps_finish() the first signal already ends the process at once, for a program that
  /// has nothing to save yet. It writes `last_words` to standard error.
  explicit Interruption(std::string last_words);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  bool requested() const;
  /// From now on the first signal only asks; the one that ends the process writes `last_words`.
  void let_steps_finish(std::string last_words) const;

 private:
  class Receiver;
  std::unique_ptr<Receiver> receiver_;
};

}  // namespace hybrid_trainer
