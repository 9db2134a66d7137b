#include "src/data/examples/packed_texts.h"

#include <numeric>

#include "src/core/narrow.h"

namespace hybrid_trainer {

namespace {

constexpr std::int32_t kPaddingText = 8;

class SequenceOfRows {
 public:
  SequenceOfRows(const ExampleMemory& memory, std::size_t labels)
      : tokens_(memory.labels("tokens")),
        positions_(memory.labels("positions")),
        is_token_(memory.labels("is_token")),
        types_(memory.labels("types")),
        ends_(memory.labels("ends")),
        roles_(memory.labels("roles")),
        classes_(memory.labels("classes")),
        labels_(memory.floats("labels")),
        labels_per_row_(labels) {
    std::ranges::fill(types_, 0);
    std::ranges::fill(ends_, 0);
    std::ranges::fill(roles_, -1);
    std::ranges::fill(classes_, kNoTarget);
    std::ranges::fill(labels_, 0.0f);
  }

  void add(const TextRow& row) {
    if (!classes_.empty()) classes_[slot_] = row.class_index.value_or(kNoTarget);
    if (labels_per_row_ > 0 && !row.labels.empty()) {
      require(row.labels.size() == labels_per_row_, "all rows have equally many labels");
      std::ranges::copy(row.labels, labels_.subspan(slot_ * labels_per_row_).begin());
    }
    std::ranges::copy(row.tokens, tokens_.subspan(place_).begin());
    if (!types_.empty()) std::ranges::copy(row.types, types_.subspan(place_).begin());
    std::int64_t begin = 0;
    for (std::size_t role = 0; role < row.ends.size(); ++role, ++slot_) {
      const std::size_t count = narrow<std::size_t>(row.ends[role] - begin);
      const auto positions = positions_.subspan(place_, count);
      std::iota(positions.begin(), positions.end(), 0);
      place_ += count;
      ends_[slot_] = narrow<std::int32_t>(place_);
      roles_[slot_] = narrow<std::int32_t>(role);
      begin = row.ends[role];
    }
  }

  void pad(std::int32_t padding) {
    std::ranges::fill(tokens_.subspan(place_), padding);
    // Texts of padding are short, so that their positions are in the model's context.
    std::int32_t position = 0;
    for (std::int32_t& here : positions_.subspan(place_)) here = position++ % kPaddingText;
    std::ranges::fill(is_token_.first(place_), 1);
    std::ranges::fill(is_token_.subspan(place_), 0);
  }

 private:
  const std::span<std::int32_t> tokens_, positions_, is_token_, types_, ends_, roles_, classes_;
  const std::span<float> labels_;
  const std::size_t labels_per_row_;
  std::size_t place_ = 0, slot_ = 0;
};

}  // namespace

PackedTexts::PackedTexts(std::vector<TextRow> rows, const Settings& settings)
    : rows_(std::move(rows)), settings_(settings) {
  if (rows_.empty()) throw DataError("there are no rows of texts");
  std::vector<std::int64_t> lengths, texts;
  for (const TextRow& row : rows_) {
    lengths.push_back(std::ssize(row.tokens));
    texts.push_back(std::ssize(row.ends));
  }
  set_bins(best_fit_decreasing(lengths, settings.sequence_length,
                               {texts, text_slots(settings.sequence_length)}),
           lengths, settings.sequence_length);
}

double PackedTexts::weight_of(const TextRow& row) const {
  const bool has_weight = settings_.has_classes && settings_.labels == 1 && !row.labels.empty();
  return has_weight ? static_cast<double>(row.labels.front()) : 1;
}

Batch PackedTexts::empty_batch(std::int64_t sequences, const Stream& stream) const {
  return empty_text_batch({.sequences = sequences,
                           .sequence_length = settings_.sequence_length,
                           .has_types = settings_.has_types,
                           .has_classes = settings_.has_classes,
                           .labels = settings_.labels},
                          stream);
}

void PackedTexts::write(std::int64_t sequence, const ExampleMemory& memory) const {
  SequenceOfRows rows(memory, static_cast<std::size_t>(settings_.labels));
  for (const std::size_t i : rows_of(sequence)) {
    rows.add(rows_[i]);
    memory.add_targets(weight_of(rows_[i]));
  }
  rows.pad(settings_.padding);
}

}  // namespace hybrid_trainer
