#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hybrid_trainer/generation/cached_decoder.h"

namespace hybrid_trainer {

/// Computes how likely a model finds texts that follow a common beginning.
class ContinuationScores {
 public:
  /// `dtype`: of activations, products and caches. Model and stream must outlive this.
  ContinuationScores(LanguageModel& model, DType dtype, const Stream& stream)
      : decoder_(model, dtype, stream) {}

  /// Of each continuation the log-likelihood behind `prompt`: the sum of its tokens' log-probabilities,
  /// in nats. Prompt and continuations hold at least one token. The prompt is computed once, and so is
  /// what it has in common with the one before. Throws Error where one does not fit the context,
  /// OutOfMemory, Diverged where a logit is not finite.
  std::vector<double> log_likelihoods(std::span<const std::int32_t> prompt,
                                      std::span<const std::vector<std::int32_t>> continuations);

 private:
  double log_probability(std::int64_t row, std::int32_t token) const;

  CachedDecoder decoder_;
};

}  // namespace hybrid_trainer
