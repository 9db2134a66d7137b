#pragma once

namespace hybrid_trainer {

/// While one exists, the first SIGINT or SIGTERM asks for a stop after the current step, and the
/// second ends the process at once with exit code 130. At most one at a time.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  bool requested() const;
};

}  // namespace hybrid_trainer
