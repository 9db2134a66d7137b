#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace hybrid_trainer::testing {

/// A hostile program that disturbs a job. Until destroyed, it connects to a local port, stays
/// silent, sends noise, disconnects, replays received bytes, and forges proofs and messages with
/// valid and invalid numbers. Keeps up to `silent_connections` silent connections open.
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
