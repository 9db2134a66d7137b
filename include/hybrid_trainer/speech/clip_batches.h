#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/audio/feature_masks.h"
#include "hybrid_trainer/fine_tuning/packed_rows.h"
#include "hybrid_trainer/models/encoder_config.h"

namespace hybrid_trainer {

/// Batches of rows that have clips, a row in each sequence, with "features" (B, frames, bands) f32 of
/// the clips beside the tokens.
class ClipBatches final : public BatchSource {
 public:
  struct Settings {
    PackedRows::Settings rows;  // whose packs is false
    EncoderConfig encoder;      // resolved
    bool masks = false;         // feature_masks are applied, at other places in each epoch
    FeatureMasks feature_masks{};
  };
  /// Throws DataError where there are no rows.
  ClipBatches(std::vector<ExampleRow> rows, const Settings& settings);
  Batch empty_batch(const Stream& stream) const override;
  std::int64_t epochs_in(std::int64_t batches) const override { return rows_.epochs_in(batches); }
  /// Reads the clips. Throws what read_wav throws.
  Batch read(std::int64_t index, const Batch& memory) const override;

 private:
  PackedRows rows_;
  Settings settings_;
};

/// All rows once, in order.
class EvaluationClips final : public EvaluationBatches {
 public:
  /// Takes one batch from the stream's pool. Throws DataError where there are no rows.
  EvaluationClips(std::vector<ExampleRow> rows, const ClipBatches::Settings& settings,
                  const Stream& stream);
  std::int64_t batches() const override;
  Batch batch(std::int64_t index) override;

 private:
  PackedRows rows_;
  EncoderConfig encoder_;
  Batch memory_;
};

}  // namespace hybrid_trainer
