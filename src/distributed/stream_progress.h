#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/distributed/lost_rank.h"

namespace hybrid_trainer {

/// Counts the collectives that streams have come to and left, which is not when the host enqueues
/// them.
class StreamProgress {
 public:
  /// Around what enqueues a collective, by one thread. Where very many are on their way, begin waits
  /// for the oldest.
  void begin(const Stream& stream);
  void end(const Stream& stream);
  /// Any thread may ask.
  RankProgress so_far() const;

 private:
  struct Collective {
    Event entered, left;
    bool is_enqueued = false;
    bool is_done() const { return is_enqueued && left.reached(); }
  };

  mutable std::mutex mutex_;
  std::deque<Collective> pending_;
  std::vector<Collective> spare_;
  std::uint64_t done_ = 0;
};

}  // namespace hybrid_trainer
