#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "hybrid_trainer/data/batch_loader.h"
#include "hybrid_trainer/series/series_scale.h"

namespace hybrid_trainer {

/// All windows of T rows that a table has, none across a gap or the border of two series. The last
/// `held_out` of each series' rows are for validation alone.
struct SeriesWindows {
  std::vector<std::int64_t> training, validation;  // first rows
  std::vector<bool> training_rows;
};

/// `held_out` may be all (1). Throws DataError where no window, of either kind that is wanted, fits.
SeriesWindows windows_of(const SeriesTable& table, std::int64_t length, double held_out);

/// Windows of a table: "kinematics" (B, T, inputs) and "value" (B, 1), the target of the last row, both
/// scaled. The table must outlive it.
class WindowReader {
 public:
  WindowReader(const SeriesTable& table, const SeriesScale& scale, std::int64_t length)
      : table_(&table), scale_(scale), length_(length) {}
  Batch empty_batch(std::int64_t examples, const Stream& stream) const;
  /// Writes the window that begins with a row.
  void write(const Batch& memory, std::int64_t example, std::int64_t row) const;

 private:
  const SeriesTable* table_;
  SeriesScale scale_;
  std::int64_t length_;
};

/// Batches of training windows, each epoch in another order, which follows from the seed.
class SeriesBatches final : public BatchSource {
 public:
  SeriesBatches(const WindowReader& reader, std::vector<std::int64_t> windows,
                std::int64_t batch_size, std::uint64_t seed)
      : reader_(reader), windows_(std::move(windows)), batch_size_(batch_size), seed_(seed) {}
  Batch empty_batch(const Stream& stream) const override {
    return reader_.empty_batch(batch_size_, stream);
  }
  std::int64_t epochs_in(std::int64_t batches) const override {
    return batches * batch_size_ / static_cast<std::int64_t>(windows_.size());
  }
  Batch read(std::int64_t batch_index, const Batch& memory) const override;

 private:
  WindowReader reader_;
  std::vector<std::int64_t> windows_;
  std::int64_t batch_size_;
  std::uint64_t seed_;
};

/// All windows of validation, in order; the last batch may be smaller.
class SeriesEvaluation final : public EvaluationBatches {
 public:
  SeriesEvaluation(const WindowReader& reader, std::vector<std::int64_t> windows,
                   std::int64_t batch_size, const Stream& stream);
  std::int64_t batches() const override;
  Batch batch(std::int64_t index) override;

 private:
  WindowReader reader_;
  std::vector<std::int64_t> windows_;
  Batch memory_;
};

}  // namespace hybrid_trainer
