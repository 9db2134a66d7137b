#pragma once

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/segment_carry.h"

namespace hybrid_trainer {

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
  static std::int64_t segments(const Batch& batch, const Pass& pass);
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
