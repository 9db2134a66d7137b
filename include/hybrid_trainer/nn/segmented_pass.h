#pragma once

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/nn/activation_tape.h"

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
  void go_on() {
    for (Slot& slot : slots_) slot = {.first = slot.last};
  }
  /// What the branches end with.
  std::vector<State> lasts() const;
  /// Saves what the segment begins with for take_firsts.
  void save_firsts(ActivationTape& tape, const Stream& stream) const;
  /// Backward begins with the last segment; then, after each, the one before ends with its gradient.
  void begin_backward() { end(); }
  void take_firsts(ActivationTape& tape, const Stream& stream);
  void go_back() {
    for (Slot& slot : slots_) slot = {.dlast = slot.dfirst};
  }
  /// Lets go of all tensors.
  void end();

 private:
  std::vector<Slot> slots_;  // in the order of their first use
  std::map<const void*, std::size_t> index_;
  Place place_;
  bool wants_last_ = false;
};

/// What the sequences of a batch ended with, without its gradient: the next batch's begin with it where
/// they go on with the same texts. By branch, in rows of all sequences of a batch.
class RowStates {
 public:
  /// How many sequences a batch has.
  void set_sequences(std::int64_t all) { all_ = all; }
  /// What `count` sequences from `first` on begin with, rows in `dtype`; none before the first commit.
  std::vector<SegmentCarry::State> firsts(std::int64_t first, std::int64_t count, DType dtype,
                                          const Stream& stream) const;
  /// Keeps what the sequences from `first` on ended with, until commit.
  void remember(std::int64_t first, const std::vector<SegmentCarry::State>& lasts,
                const Stream& stream);
  /// The next batch begins with what was remembered last.
  void commit() { std::swap(now_, next_); }
  /// As "carried.<branch>.rows" and ".scan".
  void save(State& state) const;
  void load(const State& state, const Stream& stream);

 private:
  std::int64_t all_ = 0;
  std::vector<SegmentCarry::State> now_, next_;
};

/// What a model does with a segment of sequences, or with whole ones.
class SegmentSteps {
 public:
  /// Forward up to its head, to x.
  virtual Tensor hidden(const Batch& segment, ActivationTape& tape, const Stream& stream) = 0;
  /// Writes the losses of its tokens, (B·T) f32, undivided, from x, which it may overwrite.
  virtual void losses(const Tensor& of_rows, const Tensor& x, const Batch& segment,
                      float gradient_scale, ActivationTape& tape, const Stream& stream) = 0;
  virtual void backward_from_losses(const Batch& segment, ActivationTape& tape,
                                    const Stream& stream) = 0;

 protected:
  ~SegmentSteps() = default;
};

/// Goes over sequences in segments of Pass::segment tokens: forward for the loss, keeping what each
/// segment begins with on the tape; backward from the last segment to the first. The last
/// Pass::kept_segments keep their activations, the others are computed again. Gradients are exact.
/// Sequences begin and end with Pass::states, if there are some, whose gradient goes nowhere.
class SegmentedPass {
 public:
  /// The mean loss, (1) f64; under Pass::loss_may_wait backward writes it.
  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 SegmentSteps& steps, const Stream& stream);
  /// Heads go in the order of backward, so that the bits do not depend on what was kept.
  void backward(const Batch& batch, ActivationTape& tape, SegmentSteps& steps,
                const Stream& stream);

 private:
  static std::int64_t segments(const Batch& batch, const Pass& pass) {
    const std::int64_t time = batch.tokens_per_example();
    return pass.segment > 0 ? (time + pass.segment - 1) / pass.segment : 1;
  }
  /// Whether backward computes segment `index` of `count` again.
  static bool is_again(std::int64_t index, std::int64_t count, const Pass& pass) {
    return index + pass.kept_segments < count;
  }
  bool begins_with_state(std::int64_t index) const { return index > 0 || goes_on_; }
  void begin(const Batch& batch, const Pass& pass, const Stream& stream);
  /// Makes segment `index` the one that runs on the tape.
  Batch enter(const Batch& batch, std::int64_t index, ActivationTape& tape, const Stream& stream);

  SegmentCarry carry_;         // holds tensors during a pass alone
  Tensor of_rows_{}, loss_{};  // from forward to backward, where the loss waits
  float gradient_scale_ = 1;   // of the last forward pass
  std::int64_t first_token_ = 0;
  bool goes_on_ = false;  // the first segment begins with states of the batch before
};

}  // namespace hybrid_trainer
