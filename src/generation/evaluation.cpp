#include "hybrid_trainer/generation/evaluation.h"

#include <cmath>

#include "hybrid_trainer/core/batch_upload.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/reductions.h"

namespace hybrid_trainer {

namespace {

/// Losses of a batch, summed over its tokens; forward in `parts` of it, of which there become twice
/// as many where memory does not hold one.
double wait_for_summed_loss(LossModel& model, const Batch& batch, DType dtype, std::int64_t& parts,
                            const Stream& stream) {
  for (;;) {
    try {
      double sum = 0;
      const std::int64_t size = batch.size() / parts;
      for (std::int64_t part = 0; part < parts; ++part) {
        const Batch examples = batch.examples(part * size, (part + 1) * size);
        ForwardOnlyTape tape({.training = false, .dtype = dtype});
        const Tensor loss = model.forward(examples, 1.0f, tape, stream);
        sum += kernels::wait_for_value(loss, stream) * examples.loss_divisor();
      }
      return sum;
    } catch (const OutOfMemory&) {
      if (batch.size() % (2 * parts) != 0) throw;
      parts *= 2;
      stream.synchronize();
      stream.pool()->trim();
    }
  }
}

}  // namespace

EvaluationResult evaluate(LossModel& model, EvaluationBatches& batches, DType dtype,
                          const Stream& stream) {
  EvaluationResult result;
  double sum = 0;
  std::int64_t parts = 1;
  BatchUpload upload;
  for (std::int64_t i = 0; i < batches.batches(); ++i) {
    const Batch batch = upload.to_device(batches.batch(i), stream);
    if (batch.size() % parts != 0) parts = batch.size();  // the last one may be smaller
    sum += wait_for_summed_loss(model, batch, dtype, parts, stream);
    result.tokens += static_cast<std::int64_t>(batch.loss_divisor());
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
