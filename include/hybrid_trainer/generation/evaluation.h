#pragma once

#include <cstdint>

#include "hybrid_trainer/data/batch_loader.h"
#include "hybrid_trainer/nn/loss_model.h"

namespace hybrid_trainer {

struct EvaluationResult {
  double loss = 0;          // nats per token, mean over all tokens
  double perplexity = 0;    // e^loss
  std::int64_t tokens = 0;  // that are targets
};

/// Loss over all targets of the batches, forward only and without dropout. Weights, moments and counters stay
/// unchanged. `dtype` is that of activations and products. Batches go in parts where memory does
/// not hold a whole one; throws OutOfMemory where it does not hold one window. Throws Diverged if
/// the loss is not finite.
EvaluationResult evaluate(LossModel& model, EvaluationBatches& batches, DType dtype,
                          const Stream& stream);

}  // namespace hybrid_trainer
