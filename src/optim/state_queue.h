#pragma once

#include <deque>

#include "hybrid_trainer/core/background_worker.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// Copies in memory of state that lies in a file. While a weight is updated, a thread of its own
/// writes back the state of the one before and reads that of the one that followed in the last
/// update. What is live depends on the order of the updates alone, never on the disk's pace.
class StateQueue {
 public:
  StateQueue() : worker_(1, true) {}
  StateQueue(const StateQueue&) = delete;
  StateQueue& operator=(const StateQueue&) = delete;
  /// To be called before and after each update; after it all is written. Throw IoError.
  void begin_update() { settle(); }
  void end_update() { settle(); }
  /// A copy to be changed. Copies that are held together are of one weight. Throws OutOfMemory,
  /// IoError.
  Tensor acquire(const Tensor& state, const Stream& stream);
  /// The last one of a weight: all of them are written back.
  void release();

 private:
  struct Page {
    Tensor home, here;
    std::int64_t jobs = 0;  // that must be done before `here` is used, or goes
  };
  /// The state of one weight. Where a deque grows, what is in it stays.
  struct OfWeight {
    std::deque<Page> pages;
  };
  void begin_weight(const Tensor& state, const Stream& stream);
  void bring_ahead(OfWeight& weight, const Stream& stream);
  void let_go(std::size_t weights);
  void settle();
  Tensor allocate(const Tensor& state, const Stream& stream);
  void submit(const Tensor& to, const Tensor& from, Page& page);

  std::deque<OfWeight> weights_;  // in the order of the last update
  std::size_t begun_ = 0;         // of them in this update
  std::size_t gone_ = 0;          // of those: written back, their memory free
  std::size_t taken_ = 0;         // pages of the one that is held
  int holders_ = 0;
  BackgroundWorker worker_;  // stops before the rest goes
};

}  // namespace hybrid_trainer
