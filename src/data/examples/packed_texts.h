#pragma once

#include "hybrid_trainer/data/dataset.h"
#include "src/data/examples/text_rows.h"

namespace hybrid_trainer {

/// Packs examples of texts into sequences of T tokens and text_slots(T) texts.
class PackedTexts final : public Dataset {
 public:
  struct Settings {
    std::int64_t sequence_length = 0;  // T
    std::int32_t padding = 0;          // token after the last text of a sequence
    bool has_types = false;            // whether batches have token types
    bool has_classes = false;          // whether batches have the class of each row
    std::int64_t labels = 0;           // number of label values of each row
  };
  PackedTexts(std::vector<TextRow> rows, const Settings& settings);

  const std::vector<TextRow>& rows() const { return rows_; }
  /// Returns the share of all places of the sequences that texts fill.
  double fill() const;
  /// Returns the sequence's rows, in order, as indices of rows(); empty for padding.
  const std::vector<std::size_t>& rows_of(std::int64_t sequence) const;

  std::int64_t size() const override { return std::ssize(bins_); }
  Batch empty_batch(std::int64_t sequences, const Stream& stream) const override;
  /// Writes a sequence as in empty_text_batch, and counts one target per row, or its weight: the
  /// label of a row that also has a class. Positions start at 0 again at the padding. A row without
  /// labels gets kNoTarget or zeros.
  void write(std::int64_t sequence, const ExampleMemory& memory) const override;
  bool pads() const override { return true; }
  std::uint64_t order_key() const override { return 0x746578747300u; }  // "texts"

 private:
  double weight_of(const TextRow& row) const;
  std::vector<TextRow> rows_;
  Settings settings_;
  std::vector<std::vector<std::size_t>> bins_;
};

}  // namespace hybrid_trainer
