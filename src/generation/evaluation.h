#pragma once

#include <functional>
#include <string_view>

#include "hybrid_trainer/data/dataset.h"
#include "hybrid_trainer/generation/cached_decoder.h"

namespace hybrid_trainer {

struct EvaluationResult {
  double loss = 0;          // nats per token, mean over all tokens
  double perplexity = 0;    // e^loss
  std::int64_t tokens = 0;  // number of targets or of pairs of answers
  /// Measures of pairs of answers; absent for other batches.
  struct Preference {
    double reward_chosen = 0, reward_rejected = 0;  // mean rewards
    double accuracy = 0;  // share of pairs whose chosen answer has the higher reward
    double margin() const { return reward_chosen - reward_rejected; }
  };
  std::optional<Preference> preference{};
};

/// Selects every count-th batch, from `index` on. Results do not depend on the number of ranks.
struct EvaluationShare {
  int index = 0, count = 1;
  /// Gathers a text from each rank, in the order of ranks. Collective; called once.
  std::function<std::vector<std::string>(std::string_view)> gather{};
  /// True if passes are collective: all ranks then run the same number of passes, on whole batches.
  bool in_step = false;
};

/// Computes the loss over all targets of the batches, without dropout. Does not change weights,
/// moments or counters. `dtype` is the type of activations and products. A pass computes one of
/// `parts` parts of a batch. If memory is short, splits batches into more parts, and long sequences
/// into segments (LossModel::segment_for). A loss that compares texts (TextLoss) compares all texts
/// of a batch, however many parts there are. Throws OutOfMemory if a single window does not fit,
/// and Diverged if the loss is not finite.
EvaluationResult evaluate(LossModel& model, const OrderedBatches& batches, DType dtype,
                          const Stream& stream, const EvaluationShare& share = {},
                          std::int64_t segment_length = 0, std::int64_t parts = 1);

/// Scores continuations of a common prompt by their likelihood.
class ContinuationScores {
 public:
  /// `dtype` is the type of activations, products and caches. Model and stream must outlive this.
  ContinuationScores(LanguageModel& model, DType dtype, const Stream& stream)
      : decoder_(model, dtype, stream) {}

  /// Returns each continuation's log-likelihood in nats. Prompt and continuations must not be
  /// empty. Reuses the prefix that the prompt shares with the previous call's text. Throws Error if
  /// a continuation does not fit the context, OutOfMemory, and Diverged if a logit is not finite.
  std::vector<double> log_likelihoods(std::span<const std::int32_t> prompt,
                                      std::span<const std::vector<std::int32_t>> continuations);

 private:
  double log_probability(std::int64_t row, std::int32_t token) const;

  CachedDecoder decoder_;
};

}  // namespace hybrid_trainer
