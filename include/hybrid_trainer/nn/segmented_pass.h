#pragma once

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/nn/activation_tape.h"

namespace hybrid_trainer {

class ActivationTape;

/// Passes the state of branches from each segment of a long sequence to the next segment, and the
/// state's gradient in the opposite direction. A long sequence can then train in the memory of one
/// segment.
class SegmentCarry {
 public:
  /// Rows of tokens that the next segment also reads, and the state of a scan, if any.
  struct State {
    Tensor rows{}, scan{};
  };
  struct Slot {
    State first{};   // undefined in the first segment
    State last{};    // state after the segment; set by forward if needs_last()
    State dlast{};   // gradient of `last`; undefined after the last segment
    State dfirst{};  // gradient of `first`; set by backward if `first` is defined
  };

  /// The current segment: tokens [begin, begin + tokens) of `whole`. `positions` covers whole
  /// sequences of several documents.
  struct Place {
    std::int64_t begin = 0, tokens = 0, whole = 0;
    Tensor positions{};
  };

  /// Returns the branch's slot, creating it on the first call.
  Slot& of(const void* branch);
  /// Returns whether forward must store the state after each segment.
  bool needs_last() const { return needs_last_; }

  const Place& place() const { return place_; }
  void set_place(Place place) { place_ = std::move(place); }

  /// Begins forward with the first segment. `first_states`: the branches' initial states in order
  /// of use, or empty.
  void begin(const std::vector<State>& first_states);
  void next_segment() {
    for (Slot& slot : slots_) slot = {.first = slot.last};
  }
  /// Returns the final states of the branches.
  std::vector<State> last_states() const;
  /// Saves the initial states of the segment for take_first_states.
  void save_first_states(ActivationTape& tape, const Stream& stream) const;
  /// Begins backward with the last segment; previous_segment then passes gradients on.
  void begin_backward() { end(); }
  void take_first_states(ActivationTape& tape, const Stream& stream);
  void previous_segment() {
    for (Slot& slot : slots_) slot = {.dlast = slot.dfirst};
  }
  void end();

 private:
  std::vector<Slot> slots_;  // in the order of their first use
  std::map<const void*, std::size_t> index_;
  Place place_;
  bool needs_last_ = false;
};

/// Final states of a batch's sequences, without gradients. Sequences of the next batch continue the
/// same texts and start from these states. Each branch has one state, with one row per sequence.
class RowStates {
 public:
  void set_sequences(std::int64_t all) { all_ = all; }
  /// Returns the initial states of sequences [first, first + count), if any, with rows in `dtype`.
  std::vector<SegmentCarry::State> first_states(std::int64_t first, std::int64_t count, DType dtype,
                                                const Stream& stream) const;
  /// Stores the final states of the sequences from `first` on. They become available with `commit`.
  void remember(std::int64_t first, const std::vector<SegmentCarry::State>& last_states,
                const Stream& stream);
  /// Makes the stored states the initial states of the next batch.
  void commit() { std::swap(now_, next_); }
  /// Saves the states as "carried.<branch>.rows" and "carried.<branch>.scan".
  void save(State& state) const;
  void load(const State& state, const Stream& stream);

 private:
  std::int64_t all_ = 0;
  std::vector<SegmentCarry::State> now_, next_;
};

/// Callbacks of a model for one segment, or for whole sequences.
class SegmentSteps {
 public:
  /// Runs forward up to the input x of the head.
  virtual Tensor hidden(const Batch& segment, ActivationTape& tape, const Stream& stream) = 0;
  /// Writes the undivided losses of the tokens to of_rows, (B·T) f32. May overwrite x.
  virtual void losses(const Tensor& of_rows, const Tensor& x, const Batch& segment,
                      float gradient_scale, ActivationTape& tape, const Stream& stream) = 0;
  virtual void backward_from_losses(const Batch& segment, ActivationTape& tape,
                                    const Stream& stream) = 0;

 protected:
  ~SegmentSteps() = default;
};

/// Processes sequences in segments. Forward computes the loss and saves each segment's initial
/// state. Backward recomputes activations of all but the last Pass::kept_segments segments.
/// Gradients are exact, but do not flow into the previous batch.
class SegmentedPass {
 public:
  /// Returns the mean loss, (1) f64. If Pass::loss_may_wait is set, backward writes its value.
  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 SegmentSteps& steps, const Stream& stream);
  /// Runs the heads in backward order, whatever Pass::kept_segments is.
  void backward(const Batch& batch, ActivationTape& tape, SegmentSteps& steps,
                const Stream& stream);

 private:
  static std::int64_t segments(const Batch& batch, const Pass& pass) {
    const std::int64_t time = batch.tokens_per_example();
    return pass.segment > 0 ? (time + pass.segment - 1) / pass.segment : 1;
  }
  static bool is_recomputed(std::int64_t index, std::int64_t count, const Pass& pass) {
    return index + pass.kept_segments < count;
  }
  bool has_first_state(std::int64_t index) const { return index > 0 || continues_; }
  void begin(const Batch& batch, const Pass& pass, const Stream& stream);
  Batch enter(const Batch& batch, std::int64_t index, ActivationTape& tape, const Stream& stream);

  SegmentCarry carry_;         // holds tensors only during a pass
  Tensor of_rows_{}, loss_{};  // set between forward and backward if the loss waits
  float gradient_scale_ = 1;   // gradient scale of the last forward pass
  std::int64_t first_token_ = 0;
  bool continues_ = false;  // the first segment starts from the previous batch's states
};

}  // namespace hybrid_trainer
