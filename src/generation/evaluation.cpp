#include "hybrid_trainer/generation/evaluation.h"

#include <cmath>

#include "hybrid_trainer/core/batch_upload.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/reductions.h"

namespace hybrid_trainer {

EvaluationResult evaluate(LossModel& model, EvaluationWindows& windows, DType dtype,
                          const Stream& stream) {
  EvaluationResult result;
  double sum = 0;
  BatchUpload upload;
  for (std::int64_t i = 0; i < windows.batches(); ++i) {
    const Batch batch = upload.to_device(windows.batch(i), stream);
    ForwardOnlyTape tape({.training = false, .dtype = dtype});
    const Tensor loss = model.forward(batch, 1.0f, tape, stream);
    sum += kernels::wait_for_value(loss, stream) * static_cast<double>(batch.tokens());
    result.tokens += batch.tokens();
  }
  result.loss = sum / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss);
  if (!std::isfinite(result.loss)) {
    throw Diverged(concat("the loss over the validation split is ", result.loss,
                          ": the model's weights are not sound"));
  }
  return result;
}

}  // namespace hybrid_trainer
