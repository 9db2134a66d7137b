#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace hybrid_trainer::testing {

/// A hostile program that disturbs a job. Until destroyed, it repeatedly connects to a port of this
/// machine, stays silent, sends noise, disconnects in the middle, replays received bytes, and
/// forges proofs and every kind of message with valid and invalid numbers. Keeps up to
/// `silent_connections` silent connections open.
class Stranger {
 public:
  Stranger(std::uint16_t port, int silent_connections);
  ~Stranger() { is_over_ = true; }
  /// Number of completed attack rounds.
  int rounds() const { return rounds_; }

 private:
  std::atomic<bool> is_over_ = false;
  std::atomic<int> rounds_ = 0;
  std::jthread thread_;
};

}  // namespace hybrid_trainer::testing
