#pragma once

#include "src/data/examples/packed_rows.h"
#include "src/data/examples/text_rows.h"

namespace hybrid_trainer {

/// Packs examples of texts into sequences of T tokens and text_slots(T) texts.
class PackedTexts final : public PackedSequences {
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
  Batch empty_batch(std::int64_t sequences, const Stream& stream) const override;
  /// Writes a sequence as in empty_text_batch. Counts one target per row. If a row has a class and a
  /// label, the label is its weight, and it counts as that many targets. Positions start at 0 again
  /// at the padding. A row without labels gets kNoTarget or zeros.
  void write(std::int64_t sequence, const ExampleMemory& memory) const override;
  std::uint64_t order_key() const override { return 0x746578747300u; }  // "texts"

 private:
  double weight_of(const TextRow& row) const;
  std::vector<TextRow> rows_;
  Settings settings_;
};

}  // namespace hybrid_trainer
