#include "src/trainer/gradient_recording.h"

namespace hybrid_trainer {

const PendingGradient& GradientRecording::run(const Batch& batch, const Enqueue& enqueue,
                                              const Stream& stream) {
  if (batch_.inputs.shape() != batch.inputs.shape() ||
      batch_.targets.shape() != batch.targets.shape()) {
    drop();
    batch_ = {Tensor::empty_like(batch.inputs, MemoryKind::kData, stream),
              Tensor::empty_like(batch.targets, MemoryKind::kData, stream)};
  }
  if (first_) {
    first_ = false;
    return result_ = enqueue(batch, stream);
  }
  if (!recording_) {
    result_ = {};
    recording_ =
        Recording(stream, [&](const Stream& recorded) { result_ = enqueue(batch_, recorded); });
  }
  copy(batch_.inputs, batch.inputs, stream);
  copy(batch_.targets, batch.targets, stream);
  recording_.replay(stream);
  return result_;
}

}  // namespace hybrid_trainer
