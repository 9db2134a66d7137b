#pragma once

#include <functional>
#include <string_view>

#include "hybrid_trainer/data/dataset.h"
#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/nn/network.h"

namespace hybrid_trainer {

struct EvaluationResult {
  double loss = 0;          // nats per token, mean over all tokens
  double perplexity = 0;    // e^loss
  std::int64_t tokens = 0;  // that are targets, or pairs of answers
  /// Of pairs of answers; absent of other batches.
  struct Preference {
    double reward_chosen = 0, reward_rejected = 0;  // means
    double accuracy = 0;  // share of pairs whose chosen answer has the larger reward
    double margin() const { return reward_chosen - reward_rejected; }
  };
  std::optional<Preference> preference{};
};

/// Which batches one of several evaluates: each count-th from the index-th on. The result has the
/// same bits whatever their number.
struct EvaluationShare {
  int index = 0, count = 1;
  /// Gathers the text of each rank, by index. Called once, by all.
  std::function<std::vector<std::string>(std::string_view)> gather{};
  /// A pass is made by all together: each makes as many, of whole batches.
  bool in_step = false;
};

/// Loss over all targets of the batches, forward only and without dropout. Weights, moments and counters stay
/// unchanged. `dtype` is that of activations and products. Batches go in parts where memory does
/// not hold a whole one, and long sequences in segments (LossModel::segment_for); throws OutOfMemory where it does not hold one window. Throws Diverged if
/// the loss is not finite.
EvaluationResult evaluate(LossModel& model, const OrderedBatches& batches, DType dtype,
                          const Stream& stream, const EvaluationShare& share = {},
                          std::int64_t segment_length = 0);

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
