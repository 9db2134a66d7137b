#pragma once

#include <algorithm>
#include <cstddef>

#include "hybrid_trainer/data/batch_loader.h"
#include "src/data/examples/example_rows.h"

namespace hybrid_trainer {

/// Which items lie in each bin of the capacity, by best-fit decreasing: the longest first, each into
/// the fullest bin that has room, a new one where none has. Of equal ones the first comes first. No
/// length is larger than the capacity.
std::vector<std::vector<std::size_t>> best_fit_decreasing(std::span<const std::int64_t> lengths,
                                                          std::int64_t capacity);

/// Log-likelihoods of the answers of a pair.
struct PairReference {
  double chosen = 0, rejected = 0;
};
using PairReferences = std::vector<PairReference>;  // by row

/// An endless sequence of training batches of rows, several in each sequence of T tokens. Batch i is
/// a function of rows, settings and i alone, so that the number of batches taken is the position. An
/// epoch has each sequence once, in a permutation of its own. If there are fewer sequences than a batch
/// has, each batch is an epoch, and its other sequences are padding.
class PackedRows final : public BatchSource {
 public:
  struct Settings {
    std::int64_t batch_size = 1;       // B, sequences in a batch
    std::int64_t sequence_length = 0;  // T; rows have at most T + 1 tokens
    bool shuffle = true;               // each epoch; else in the order of packing
    bool packs = true;                 // else each row has a sequence of its own
    std::uint64_t seed = 0;
    std::int32_t padding = 0;        // the token behind the last row of a sequence
    std::int64_t source_length = 0;  // S, of rows with sources: none has more tokens
    /// Of pairs of answers: what the reference model gives for each row; null: 0.
    std::shared_ptr<const PairReferences> references = nullptr;
  };
  /// Throws DataError where there are no rows.
  PackedRows(std::vector<ExampleRow> rows, const Settings& settings);

  const std::vector<ExampleRow>& rows() const { return rows_; }
  /// Whether its rows are pairs of answers.
  bool has_pairs() const { return rows_.front().rejected_at > 0; }
  /// Whether its rows have sources, which encoders read.
  bool has_sources() const { return !rows_.front().source.empty(); }
  std::int64_t sequence_length() const { return settings_.sequence_length; }
  std::int64_t sequences() const { return static_cast<std::int64_t>(bins_.size()); }
  /// The share of all sequences' places that rows take.
  double fill() const;

  Batch empty_batch(const Stream& stream) const override {
    return empty_batch(settings_.batch_size, stream);
  }
  /// One of so many sequences. With sources it has "source_tokens" and "source_positions" (B, S) i32, which
  /// begin at 0 with the padding again, and "source_lengths" (B) i32.
  Batch empty_batch(std::int64_t sequences, const Stream& stream) const;
  std::int64_t epochs_in(std::int64_t batches) const override {
    return batches * std::min(settings_.batch_size, sequences()) / sequences();
  }
  /// Writes batch `index` into memory that the processor reaches. A row of n tokens takes n − 1
  /// places: those of its tokens but the last; a target is the next token where that is trained on,
  /// else kNoTarget; positions begin at 0 with each text, and with the padding. Both texts of a pair
  /// stand in one sequence; the batch then has "halves" and "references" (kernels/loss.h), and
  /// its targets count pairs. Sources have rows of their own.
  Batch read(std::int64_t index, const Batch& memory) const override;
  /// Writes sequences first, first + 1, … in the order of packing.
  Batch read_in_order(std::int64_t first, const Batch& memory) const;

  /// The rows of sequence `row` of batch `index`, in order: indices into rows(). Empty: padding.
  const std::vector<std::size_t>& rows_of(std::int64_t index, std::int64_t row) const;
  /// Epoch of sequence `row` of batch `index`.
  std::int64_t epoch_of(std::int64_t index, std::int64_t row) const;
  /// The rows of a sequence in the order of packing: indices into rows().
  const std::vector<std::size_t>& rows_in_order(std::int64_t sequence) const {
    return bins_[static_cast<std::size_t>(sequence)];
  }

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
