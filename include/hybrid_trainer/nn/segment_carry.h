#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

class ActivationTape;

/// What the branches of a model hand from one segment of long sequences to the next, and the
/// gradient of that back: so a sequence trains in the memory of one segment.
class SegmentCarry {
 public:
  /// What one branch hands over: rows of tokens that the next segment reads again, and a state of its
  /// scan. Either may be undefined.
  struct State {
    Tensor rows{}, scan{};
  };
  /// Of one branch, in the segment that runs.
  struct Slot {
    State first{};   // undefined in the first segment
    State last{};    // what the segment ends with; forward fills it in if wants_last
    State dlast{};   // gradients of `last`; undefined behind the last segment
    State dfirst{};  // gradients of `first`; backward fills it in where there is a first
  };

  /// A segment: `tokens` of each sequence of `whole` tokens, from token `begin` on, and the positions
  /// of the whole sequences (see Batch), if they are several documents.
  struct Place {
    std::int64_t begin = 0, tokens = 0, whole = 0;
    Tensor positions{};
  };

  /// The branch's own; made where there is none yet.
  Slot& of(const void* branch);
  /// Whether the forward pass goes over the segments to learn their states.
  bool wants_last() const { return wants_last_; }

  /// Of the segment that runs.
  const Place& place() const { return place_; }
  void set_place(Place place) { place_ = std::move(place); }

  /// Forward begins with the first segment and what its branches begin with, in the order of their
  /// first use, if anything; then, after each, the next begins where it ended.
  void begin(const std::vector<State>& firsts);
  void go_on();
  /// What the branches end with.
  std::vector<State> lasts() const;
  /// Saves what the segment begins with for take_firsts.
  void save_firsts(ActivationTape& tape, const Stream& stream) const;
  /// Backward begins with the last segment; then, after each, the one before ends with its gradient.
  void begin_backward();
  void take_firsts(ActivationTape& tape, const Stream& stream);
  void go_back();
  /// Lets go of all tensors.
  void end();

 private:
  std::vector<Slot> slots_;  // in the order of their first use
  std::map<const void*, std::size_t> index_;
  Place place_;
  bool wants_last_ = false;
};

}  // namespace hybrid_trainer
