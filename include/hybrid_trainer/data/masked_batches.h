#pragma once

#include <cstdint>
#include <memory>

#include "hybrid_trainer/data/batch_loader.h"

namespace hybrid_trainer {

/// Which tokens of a sequence a model is to tell. Of them four in five stand as the mask token, one in
/// ten as a random token of the data, and one in ten as they are (Devlin et al. 2019, "BERT").
struct MaskSettings {
  double share = 0.15;  // of a sequence's tokens, rounded, and at least one
  std::int32_t mask_token = 0;
  std::int32_t words = 0;  // ids of the data: those below
  std::uint64_t seed = 0;
};

/// Tokens of a sequence of T that are chosen: always as many, so that all parts of a batch weigh the
/// same.
std::int64_t masked_tokens(double share, std::int64_t length);

/// Another source's batches for a model that sees both sides of a token: chosen tokens are their own
/// targets, all others have none. Which are chosen, and what they become, follows from seed, batch
/// and place alone. Takes no memory beside the source's.
class MaskedBatches final : public BatchSource {
 public:
  MaskedBatches(std::unique_ptr<const BatchSource> source, const MaskSettings& settings)
      : source_(std::move(source)), settings_(settings) {}
  Batch empty_batch(const Stream& stream) const override { return source_->empty_batch(stream); }
  std::int64_t epochs_in(std::int64_t batches) const override {
    return source_->epochs_in(batches);
  }
  Batch read(std::int64_t batch_index, const Batch& memory) const override;

 private:
  std::unique_ptr<const BatchSource> source_;
  MaskSettings settings_;
};

/// Masks the batches of an evaluation. What is masked of a sequence follows from its tokens
/// alone, so that runs and steps are measured on the same masks, whatever their seeds and batches.
class MaskedEvaluation final : public EvaluationBatches {
 public:
  /// settings.seed has no effect.
  MaskedEvaluation(std::unique_ptr<EvaluationBatches> batches, const MaskSettings& settings)
      : batches_(std::move(batches)), settings_(settings) {}
  std::int64_t batches() const override { return batches_->batches(); }
  Batch batch(std::int64_t index) override;

 private:
  std::unique_ptr<EvaluationBatches> batches_;
  MaskSettings settings_;
};

}  // namespace hybrid_trainer
