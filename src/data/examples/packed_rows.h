#pragma once

#include "hybrid_trainer/data/dataset.h"
#include "src/data/examples/example_rows.h"

namespace hybrid_trainer {

/// Packs items into bins by best-fit decreasing and returns the items of each bin. Items of equal
/// length keep their order. Each item must fit in an empty bin.
std::vector<std::vector<std::size_t>> best_fit_decreasing(std::span<const std::int64_t> lengths,
                                                          std::int64_t capacity);

/// Number of slots that each item uses, and number of slots of a bin.
struct BinSlots {
  std::span<const std::int64_t> of_items;
  std::int64_t of_bin = 0;
};
/// Packs like the previous function, and also limits the slots that the items of a bin use.
std::vector<std::vector<std::size_t>> best_fit_decreasing(std::span<const std::int64_t> lengths,
                                                          std::int64_t capacity,
                                                          const BinSlots& slots);

struct PairReference {
  double chosen = 0, rejected = 0;
};
using PairReferences = std::vector<PairReference>;  // indexed by row

/// Sequences of T tokens that contain several rows each.
class PackedSequences : public Dataset {
 public:
  /// Returns the share of the sequences' positions that rows fill.
  double fill() const { return fill_; }
  /// Returns the indices of the sequence's rows, in order; empty if it is only padding.
  const std::vector<std::size_t>& rows_of(std::int64_t sequence) const;
  std::int64_t size() const override { return std::ssize(bins_); }
  bool pads() const override { return true; }

 protected:
  /// Sets the rows of each sequence. `lengths`: positions that each row fills.
  void set_bins(std::vector<std::vector<std::size_t>> bins, std::span<const std::int64_t> lengths,
                std::int64_t sequence_length);

 private:
  std::vector<std::vector<std::size_t>> bins_;
  double fill_ = 0;
};

class PackedRows final : public PackedSequences {
 public:
  struct Settings {
    std::int64_t sequence_length = 0;  // T; rows have at most T + 1 tokens
    bool packs = true;                 // false: one row per sequence
    std::int32_t padding = 0;          // token after the last row of a sequence
    std::int64_t source_length = 0;    // S: maximum tokens of a source
    /// Log-likelihoods of the reference model for each preference pair. If null, all are 0.
    std::shared_ptr<const PairReferences> references = nullptr;
  };
  PackedRows(std::vector<ExampleRow> rows, const Settings& settings);

  const std::vector<ExampleRow>& rows() const { return rows_; }
  bool has_pairs() const { return rows_.front().rejected_at > 0; }
  bool has_sources() const { return !rows_.front().source.empty(); }
  /// If rows have sources, adds "source_tokens" (B, S), "source_positions" (B, S) and
  /// "source_lengths" (B), all i32. Source positions start at 0 again at the padding.
  Batch empty_batch(std::int64_t sequences, const Stream& stream) const override;
  /// A row of n tokens fills n − 1 positions, one for each token except the last. The target of a
  /// token is the next token if the row trains on it, otherwise kNoTarget. Positions start at 0
  /// with each text and at the padding. With pairs, the batch has "halves" and "references"
  /// (kernels/loss.h) and counts one target per pair.
  void write(std::int64_t sequence, const ExampleMemory& memory) const override;
  std::uint64_t order_key() const override { return 0x726F77730000u; }  // "rows"

 private:
  std::vector<ExampleRow> rows_;
  Settings settings_;
};

}  // namespace hybrid_trainer
