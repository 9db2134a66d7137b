#pragma once

#include <functional>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/segment_carry.h"

namespace hybrid_trainer {

/// Goes over long sequences in segments of Pass::segment tokens: forward for the loss, keeping what
/// each segment begins with on the tape; backward from the last segment to the first, each of which
/// is computed again. Gradients are exact.
class SegmentedPass {
 public:
  /// Forward of a segment: writes the losses of its tokens, (B·T) f32, undivided.
  using Losses = std::function<void(const Tensor& of_rows, const Batch& segment,
                                    float gradient_scale, ActivationTape& tape)>;
  using Backward = std::function<void(const Batch& segment, ActivationTape& tape)>;

  /// The mean loss, (1) f64.
  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 const Losses& losses, const Stream& stream);
  void backward(const Batch& batch, ActivationTape& tape, const Losses& losses,
                const Backward& backward, const Stream& stream);

 private:
  SegmentCarry carry_;        // holds tensors during a pass alone
  float gradient_scale_ = 1;  // of the last forward pass
};

}  // namespace hybrid_trainer
