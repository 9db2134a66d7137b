#pragma once

#include <chrono>

#include "hybrid_trainer/distributed/decorated_communicator.h"

namespace hybrid_trainer {

/// Time of a message over a link: a part that is always there, and one by its bytes. Each direction
/// has the whole rate.
struct LinkSpeed {
  double bytes_per_second = 0;  // 0: bytes take no time
  std::chrono::duration<double> latency{0};
};

/// Another communicator, each of whose calls takes in addition what it would over a slower link: the
/// latency, and the bytes that this rank sends or receives, whichever are more, at the link's rate.
/// Imitates a network on one machine, to measure what hides it; no bit depends on it.
class ImitatedLink final : public DecoratedCommunicator {
 public:
  /// `ranks` must outlive it.
  ImitatedLink(Communicator& ranks, LinkSpeed speed)
      : DecoratedCommunicator(ranks), speed_(speed) {}

 protected:
  void make(const Stream* stream, const std::function<void()>& call) override;

 private:
  LinkSpeed speed_;
};

}  // namespace hybrid_trainer
