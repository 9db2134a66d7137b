#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace hybrid_trainer::testing {

/// A program that is no rank and wants to disturb a job: until it is destroyed it connects to a port
/// of this machine again and again, says nothing, sends noise, ends in the middle, repeats what it
/// was sent, and forges proofs and each kind of message with right and wrong numbers. It holds up to
/// so many silent connections.
class Stranger {
 public:
  Stranger(std::uint16_t port, int silent_connections);
  ~Stranger() { is_over_ = true; }
  /// How often it has done all of that.
  int rounds() const { return rounds_; }

 private:
  std::atomic<bool> is_over_ = false;
  std::atomic<int> rounds_ = 0;
  std::jthread thread_;
};

}  // namespace hybrid_trainer::testing
