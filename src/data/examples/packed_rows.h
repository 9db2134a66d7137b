#pragma once

#include <algorithm>
#include <cstddef>

#include "hybrid_trainer/data/dataset.h"
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

/// Rows of examples, several in each sequence of T tokens. An example of the dataset is a sequence.
class PackedRows final : public Dataset {
 public:
  struct Settings {
    std::int64_t sequence_length = 0;  // T; rows have at most T + 1 tokens
    bool packs = true;                 // else each row has a sequence of its own
    std::int32_t padding = 0;          // the token behind the last row of a sequence
    std::int64_t source_length = 0;    // S, of rows with sources: none has more tokens
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
  /// The share of all sequences' places that rows take.
  double fill() const;
  /// The rows of a sequence, in order: indices into rows(). Empty: padding.
  const std::vector<std::size_t>& rows_of(std::int64_t sequence) const;

  std::int64_t size() const override { return std::ssize(bins_); }
  /// With sources it has "source_tokens" and "source_positions" (B, S) i32, which begin at 0 with the
  /// padding again, and "source_lengths" (B) i32.
  Batch empty_batch(std::int64_t sequences, const Stream& stream) const override;
  /// A row of n tokens takes n − 1 places: those of its tokens but the last; a target is the next token
  /// where that is trained on, else kNoTarget; positions begin at 0 with each text, and with the padding.
  /// Both texts of a pair stand in one sequence; the batch then has "halves" and "references"
  /// (kernels/loss.h), and its targets count pairs. Sources have rows of their own.
  void write(std::int64_t sequence, const ExampleMemory& memory) const override;
  bool pads() const override { return true; }
  std::uint64_t order_key() const override { return 0x726F77730000u; }  // "rows"

 private:
  std::vector<ExampleRow> rows_;
  Settings settings_;
  std::vector<std::vector<std::size_t>> bins_;
};

}  // namespace hybrid_trainer
