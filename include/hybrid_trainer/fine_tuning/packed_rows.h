#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hybrid_trainer/data/batch_loader.h"
#include "hybrid_trainer/fine_tuning/example_rows.h"

namespace hybrid_trainer {

/// Which items lie in each bin of the capacity, by best-fit decreasing: the longest first, each into
/// the fullest bin that has room, a new one where none has. Of equal ones the first comes first. No
/// length is larger than the capacity.
std::vector<std::vector<std::size_t>> best_fit_decreasing(std::span<const std::int64_t> lengths,
                                                          std::int64_t capacity);

/// An endless sequence of training batches of rows, several in each sequence of T tokens. Batch i is
/// a function of rows, settings and i alone, so that the number of batches taken is the position. An
/// epoch has each sequence once, in a permutation of its own.
class PackedRows final : public BatchSource {
 public:
  struct Settings {
    std::int64_t batch_size = 1;       // B, sequences in a batch
    std::int64_t sequence_length = 0;  // T; rows have at most T + 1 tokens
    bool shuffle = true;               // each epoch; else in the order of packing
    bool packs = true;                 // else each row has a sequence of its own
    std::uint64_t seed = 0;
    std::int32_t padding = 0;  // the token behind the last row of a sequence
  };
  /// Throws DataError where there are no rows.
  PackedRows(std::vector<ExampleRow> rows, const Settings& settings);

  const std::vector<ExampleRow>& rows() const { return rows_; }
  std::int64_t sequences() const { return static_cast<std::int64_t>(bins_.size()); }
  /// The share of all sequences' places that rows take.
  double fill() const;

  BatchShape shape_of(std::int64_t) const override { return largest_shape(); }
  BatchShape largest_shape() const override {
    return {settings_.batch_size, settings_.sequence_length};
  }
  bool has_positions() const override { return true; }
  std::int64_t epochs_in(std::int64_t batches) const override {
    return batches * settings_.batch_size / sequences();
  }
  /// Writes batch `index` into the caller's three tensors (B, T) i32 in memory that the processor
  /// reaches. A row of n tokens takes n − 1 places: inputs are its tokens but the last; a target is
  /// the next token where that is learnt, else kNoTarget; positions begin at 0 with each row, and
  /// with the padding.
  void read(std::int64_t index, Batch& batch) const override;
  /// The same of sequences first, first + 1, … in the order of packing.
  void read_in_order(std::int64_t first, Batch& batch) const;

  /// The rows of sequence `row` of batch `index`, in order: indices into rows().
  const std::vector<std::size_t>& rows_of(std::int64_t index, std::int64_t row) const;

 private:
  std::int64_t write(const std::vector<std::size_t>& rows, const Batch& batch,
                     std::int64_t at) const;
  std::vector<ExampleRow> rows_;
  Settings settings_;
  std::vector<std::vector<std::size_t>> bins_;
};

/// All sequences of packed rows once, in the order of packing.
class EvaluationRows final : public EvaluationBatches {
 public:
  /// Takes one batch from the stream's pool. Throws DataError where there are no rows.
  EvaluationRows(std::vector<ExampleRow> rows, const PackedRows::Settings& settings,
                 const Stream& stream);
  std::int64_t batches() const override;
  Batch batch(std::int64_t index) override;

 private:
  PackedRows rows_;
  Batch memory_;
};

}  // namespace hybrid_trainer
