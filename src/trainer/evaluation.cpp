#include "hybrid_trainer/trainer/evaluation.h"

#include <cmath>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

EvaluationResult evaluate(LossModel& model, EvaluationWindows& windows, DType dtype,
                          const Stream& stream) {
  EvaluationResult result;
  double sum = 0;
  for (std::int64_t i = 0; i < windows.batches(); ++i) {
    const Batch batch = windows.batch(i);
    ForwardOnlyTape tape({.training = false, .dtype = dtype});
    sum += model.forward(batch, 1.0f, tape, stream) * static_cast<double>(batch.tokens());
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
