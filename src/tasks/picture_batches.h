#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/data/batch_loader.h"
#include "hybrid_trainer/images/picture_processor.h"
#include "src/tasks/picture_rows.h"

namespace hybrid_trainer {

/// Batches of pictures: "pixels" (B, H, W, 3) f32 and "label" (B) i32, whose order is drawn anew in each
/// epoch.
class PictureBatches final : public BatchSource {
 public:
  struct Settings {
    std::int64_t batch_size = 1;
    bool shuffle = true;
    bool mirrors = false;  // every other picture, others in each epoch
    std::uint64_t seed = 0;
  };
  PictureBatches(std::vector<PictureRow> rows, const PictureProcessor& processor,
                 const Settings& settings)
      : rows_(std::move(rows)), processor_(processor), settings_(settings) {}
  Batch empty_batch(const Stream& stream) const override;
  std::int64_t epochs_in(std::int64_t batches) const override {
    return batches * settings_.batch_size / std::ssize(rows_);
  }
  /// Reads the pictures. In place of one that cannot be read it takes the next row's, and warns once.
  /// Throws DataError if none can be read, IoError.
  Batch read(std::int64_t index, const Batch& memory) const override;

 private:
  std::vector<PictureRow> rows_;
  PictureProcessor processor_;
  Settings settings_;
};

/// All rows once, in order.
class EvaluationPictures final : public EvaluationBatches {
 public:
  /// Takes one batch from the stream's pool.
  EvaluationPictures(std::vector<PictureRow> rows, const PictureProcessor& processor,
                     std::int64_t batch_size, const Stream& stream);
  std::int64_t batches() const override;
  Batch batch(std::int64_t index) override;

 private:
  std::vector<PictureRow> rows_;
  PictureProcessor processor_;
  Batch memory_;
};

}  // namespace hybrid_trainer
