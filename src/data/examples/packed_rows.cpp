#include "src/data/examples/packed_rows.h"

#include <map>
#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "src/core/narrow.h"

namespace hybrid_trainer {

namespace {

constexpr std::uint64_t kSequenceKey = 0x726F77730000u;  // "rows"

/// One sequence of a batch that texts are written into, one behind the other.
class SequenceOfTexts {
 public:
  SequenceOfTexts(const Batch& batch, std::int64_t at)
      : length_(batch.tokens_per_example()),
        tokens_(row_of<std::int32_t>(batch, "tokens", at)),
        targets_(row_of<std::int32_t>(batch, "targets", at)),
        positions_(row_of<std::int32_t>(batch, "positions", at)),
        is_token_(row_of<std::int32_t>(batch, "is_token", at)),
        halves_(row_of<std::int32_t>(batch, "halves", at)),
        references_(row_of<float>(batch, "references", at)) {}

  /// Tokens [first, last) of a row. `half`: which half of which pair they are, or -1.
  void add(const ExampleRow& row, std::size_t first, std::size_t last, std::int32_t half) {
    for (std::size_t t = first; t + 1 < last; ++t, ++place_) {
      const bool is_target = row.learnt[t + 1];
      tokens_[place_] = row.tokens[t];
      targets_[place_] = is_target ? row.tokens[t + 1] : kNoTarget;
      positions_[place_] = narrow<std::int32_t>(t - first);
      if (halves_ != nullptr) halves_[place_] = is_target ? half : -1;
      targets += is_target ? 1 : 0;
    }
  }
  void add_pair(const ExampleRow& row, const PairReference& reference) {
    const auto middle = static_cast<std::size_t>(row.rejected_at);
    references_[2 * pairs] = static_cast<float>(reference.chosen);
    references_[2 * pairs + 1] = static_cast<float>(reference.rejected);
    add(row, 0, middle, narrow<std::int32_t>(2 * pairs));
    add(row, middle, row.tokens.size(), narrow<std::int32_t>(2 * pairs + 1));
    ++pairs;
  }
  void pad(std::int32_t padding) {
    std::fill(tokens_ + place_, tokens_ + length_, padding);
    std::fill(targets_ + place_, targets_ + length_, kNoTarget);
    std::iota(positions_ + place_, positions_ + length_, 0);
    std::fill(is_token_, is_token_ + place_, 1);
    std::fill(is_token_ + place_, is_token_ + length_, 0);
    if (halves_ == nullptr) return;
    std::fill(halves_ + place_, halves_ + length_, -1);
    std::fill(references_ + 2 * pairs, references_ + length_, 0.0f);
  }

  std::int64_t targets = 0, pairs = 0;

 private:
  /// Null where the batch has no such tensor.
  template <class T>
  static T* row_of(const Batch& batch, const char* name, std::int64_t at) {
    const Tensor* const tensor = batch.find(name);
    return tensor == nullptr ? nullptr : tensor->data<T>() + at * batch.tokens_per_example();
  }

  const std::int64_t length_;
  std::int32_t *const tokens_, *const targets_, *const positions_, *const is_token_, *const halves_;
  float* const references_;
  std::int64_t place_ = 0;
};

/// Writes source `at` of the batch; an empty one is a token of padding.
void write_source(const std::vector<std::int32_t>& source, const Batch& batch, std::int64_t at,
                  std::int32_t padding) {
  const Tensor& all = batch.at("source_tokens");
  const std::int64_t places = all.size(1), count = std::ssize(source);
  require(count <= places, "a source fits its row");
  auto* const tokens = all.data<std::int32_t>() + at * places;
  auto* const positions = batch.at("source_positions").data<std::int32_t>() + at * places;
  std::ranges::copy(source, tokens);
  std::fill(tokens + count, tokens + places, padding);
  std::iota(positions, positions + count, 0);
  std::iota(positions + count, positions + places, 0);
  batch.at("source_lengths").data<std::int32_t>()[at] =
      narrow<std::int32_t>(std::max<std::int64_t>(1, count));
}

}  // namespace

std::vector<std::vector<std::size_t>> best_fit_decreasing(std::span<const std::int64_t> lengths,
                                                          std::int64_t capacity) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return lengths[i]; });
  std::vector<std::vector<std::size_t>> bins;
  std::multimap<std::int64_t, std::size_t> room;  // bins by what they have left
  for (const std::size_t i : order) {
    require(lengths[i] <= capacity, "what is packed fits into a bin");
    const auto found = room.lower_bound(lengths[i]);
    const bool is_new = found == room.end();
    const std::int64_t left = (is_new ? capacity : found->first) - lengths[i];
    const std::size_t bin = is_new ? bins.size() : found->second;
    if (is_new) {
      bins.emplace_back();
    } else {
      room.erase(found);
    }
    bins[bin].push_back(i);
    room.emplace(left, bin);
  }
  return bins;
}

PackedRows::PackedRows(std::vector<ExampleRow> rows, const Settings& settings)
    : rows_(std::move(rows)), settings_(settings) {
  if (rows_.empty()) throw DataError("there are no rows of examples to train on");
  require(!has_sources() || (!settings.packs && settings.source_length > 0),
          "rows with sources have sequences of their own, and their sources a length");
  for (std::size_t i = 0; i < rows_.size() && !settings.packs; ++i) bins_.push_back({i});
  if (!settings.packs) return;
  std::vector<std::int64_t> lengths;
  for (const ExampleRow& row : rows_) lengths.push_back(row.places());
  bins_ = best_fit_decreasing(lengths, settings.sequence_length);
}

double PackedRows::fill() const {
  std::int64_t places = 0;
  for (const ExampleRow& row : rows_) places += row.places();
  return static_cast<double>(places) / static_cast<double>(sequences() * settings_.sequence_length);
}

std::int64_t PackedRows::epoch_of(std::int64_t index, std::int64_t row) const {
  const bool is_epoch = settings_.batch_size >= sequences();
  return is_epoch ? index : (index * settings_.batch_size + row) / sequences();
}

const std::vector<std::size_t>& PackedRows::rows_of(std::int64_t index, std::int64_t row) const {
  static const std::vector<std::size_t> kPadding;
  const std::int64_t count = sequences(), epoch = epoch_of(index, row);
  const bool is_epoch = settings_.batch_size >= count;
  const std::int64_t place = is_epoch ? row : (index * settings_.batch_size + row) % count;
  if (place >= count) return kPadding;
  if (!settings_.shuffle) return bins_[static_cast<std::size_t>(place)];
  return bins_[random_permuted({settings_.seed, static_cast<std::uint64_t>(epoch), kSequenceKey},
                               static_cast<std::uint64_t>(place),
                               static_cast<std::uint64_t>(count))];
}

Batch PackedRows::empty_batch(std::int64_t sequences, const Stream& stream) const {
  const Batch batch = empty_row_batch({sequences, settings_.sequence_length}, has_pairs(), stream);
  if (!has_sources()) return batch;
  std::vector<NamedTensor> tensors = batch.tensors();
  const auto add = [&](const char* name, const Shape& shape) {
    tensors.push_back({name, Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream)});
  };
  add("source_tokens", {sequences, settings_.source_length});
  add("source_positions", {sequences, settings_.source_length});
  add("source_lengths", {sequences});
  return Batch(std::move(tensors), settings_.sequence_length);
}

/// Writes sequence `at` of the batch; returns how many targets it has, or pairs.
std::int64_t PackedRows::write(const std::vector<std::size_t>& rows, const Batch& batch,
                               std::int64_t at) const {
  if (has_sources())
    write_source(rows.empty() ? std::vector<std::int32_t>() : rows_[rows.front()].source, batch, at,
                 settings_.padding);
  SequenceOfTexts sequence(batch, at);
  for (const std::size_t i : rows) {
    const ExampleRow& row = rows_[i];
    if (row.rejected_at > 0) {
      sequence.add_pair(row, settings_.references ? settings_.references->at(i) : PairReference{});
    } else {
      sequence.add(row, 0, row.tokens.size(), -1);
    }
  }
  sequence.pad(settings_.padding);
  return has_pairs() ? sequence.pairs : sequence.targets;
}

Batch PackedRows::read(std::int64_t index, const Batch& memory) const {
  require(memory.size() == settings_.batch_size &&
              memory.tokens_per_example() == settings_.sequence_length,
          "a batch of rows has the settings' shape");
  std::int64_t targets = 0;
  for (std::int64_t b = 0; b < memory.size(); ++b) targets += write(rows_of(index, b), memory, b);
  Batch batch = memory;
  batch.set_targets(static_cast<double>(targets));
  return batch;
}

Batch PackedRows::read_in_order(std::int64_t first, const Batch& memory) const {
  std::int64_t targets = 0;
  for (std::int64_t b = 0; b < memory.size(); ++b)
    targets += write(bins_[static_cast<std::size_t>(first + b)], memory, b);
  Batch batch = memory;
  batch.set_targets(static_cast<double>(targets));
  return batch;
}

EvaluationRows::EvaluationRows(std::vector<ExampleRow> rows, const PackedRows::Settings& settings,
                               const Stream& stream)
    : rows_(std::move(rows), settings),
      memory_(rows_.empty_batch(std::min(settings.batch_size, rows_.sequences()), stream)) {}

std::int64_t EvaluationRows::batches() const {
  return (rows_.sequences() + memory_.size() - 1) / memory_.size();
}

Batch EvaluationRows::batch(std::int64_t index) {
  require(index >= 0 && index < batches(), "an evaluation has no batch of this number");
  const std::int64_t first = index * memory_.size();
  return rows_.read_in_order(
      first, memory_.examples(0, std::min(memory_.size(), rows_.sequences() - first)));
}

}  // namespace hybrid_trainer
