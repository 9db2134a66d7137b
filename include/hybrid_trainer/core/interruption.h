#pragma once

#include <memory>

namespace hybrid_trainer {

/// While one exists, the first SIGINT or SIGTERM asks for a stop after the current step, and the
/// second ends the process at once with exit code 130, also where they were ignored before, as in a
/// script's background. The thread that made it, and those it starts, block these signals: make it
/// before threads that compute. At most one at a time.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  bool requested() const;

 private:
  class Receiver;
  std::unique_ptr<Receiver> receiver_;
};

}  // namespace hybrid_trainer
