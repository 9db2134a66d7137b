#include "src/step/gradient_recording.h"

namespace hybrid_trainer {

const PendingGradient& GradientRecording::run(const Batch& batch, const Enqueue& enqueue,
                                              const Stream& stream) {
  if (!batch_.is_like(batch)) {
    drop();
    batch_ = batch.with(
        [&](const Tensor& part) { return Tensor::empty_like(part, MemoryKind::kData, stream); });
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
  for (std::size_t i = 0; i < batch.tensors().size(); ++i)
    copy(batch_.tensors()[i].tensor, batch.tensors()[i].tensor, stream);
  recording_.replay(stream);
  return result_;
}

}  // namespace hybrid_trainer
