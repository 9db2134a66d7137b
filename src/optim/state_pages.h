#pragma once

#include <cstddef>
#include <vector>

#include "hybrid_trainer/core/staged_tensor.h"

namespace hybrid_trainer {

/// Copies on the device of state that lies elsewhere. As many stay there between updates as a budget
/// leaves room for beside the most that a step took; what changed is written back when they leave.
/// An update comes to all state in turn, so that those that came first stay: each other choice would
/// bring every page anew in every step. It is no Prefetcher, which lets go of copies after their use.
class StatePages {
 public:
  /// `budget_bytes`: of the device.
  explicit StatePages(std::size_t budget_bytes) : budget_bytes_(budget_bytes) {}
  /// To be called before and after each update. Pages stay from the second one on after each leave:
  /// by then a whole step and its update have shown what they take. Where what else is live has
  /// grown, they leave first.
  void begin_update(const Stream& stream);
  void end_update(const MemoryPool& device);
  /// The copy of `state` that stays, brought now if there is room; undefined if there is none, or the
  /// state is undefined. `use`: what will be done with it.
  Tensor page_of(const Tensor& state, Use use, const Stream& stream);
  /// Writes back and frees all; true if there was any.
  bool leave(const Stream& stream);

 private:
  struct Page {
    Tensor home, here;
    bool changed;
  };
  std::size_t budget_bytes_;
  int updates_ = 0;              // since pages left last, up to 2
  std::size_t room_bytes_ = 0;   // for further pages
  std::size_t live_before_ = 0;  // the first of those updates
  std::size_t peak_bytes_ = 0;   // of the step that it ended
  std::vector<Page> pages_;
};

}  // namespace hybrid_trainer
