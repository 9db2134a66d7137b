#include "src/data/examples/packed_rows.h"

#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"

namespace hybrid_trainer {

namespace {

class SequenceOfTexts {
 public:
  explicit SequenceOfTexts(const ExampleMemory& memory)
      : tokens_(memory.labels("tokens")),
        targets_(memory.labels("targets")),
        positions_(memory.labels("positions")),
        is_token_(memory.labels("is_token")),
        halves_(memory.labels("halves")),
        references_(memory.floats("references")) {}

  /// Adds the tokens [first, last) of a row. `half` is 2·i for the chosen text of pair i, 2·i + 1
  /// for its rejected text, or -1.
  void add(const ExampleRow& row, std::size_t first, std::size_t last, std::int32_t half) {
    for (std::size_t t = first; t + 1 < last; ++t, ++place_) {
      const bool is_target = row.is_target[t + 1];
      tokens_[place_] = row.tokens[t];
      targets_[place_] = is_target ? row.tokens[t + 1] : kNoTarget;
      positions_[place_] = narrow<std::int32_t>(t - first);
      if (!halves_.empty()) halves_[place_] = is_target ? half : -1;
    }
  }
  void add_pair(const ExampleRow& row, const PairReference& reference) {
    const auto middle = static_cast<std::size_t>(row.rejected_at);
    references_[2 * pairs_] = static_cast<float>(reference.chosen);
    references_[2 * pairs_ + 1] = static_cast<float>(reference.rejected);
    add(row, 0, middle, narrow<std::int32_t>(2 * pairs_));
    add(row, middle, row.tokens.size(), narrow<std::int32_t>(2 * pairs_ + 1));
    ++pairs_;
  }
  void pad(std::int32_t padding) {
    std::ranges::fill(tokens_.subspan(place_), padding);
    std::ranges::fill(targets_.subspan(place_), kNoTarget);
    const auto positions = positions_.subspan(place_);
    std::iota(positions.begin(), positions.end(), 0);
    std::ranges::fill(is_token_.first(place_), 1);
    std::ranges::fill(is_token_.subspan(place_), 0);
    if (halves_.empty()) return;
    std::ranges::fill(halves_.subspan(place_), -1);
    std::ranges::fill(references_.subspan(2 * pairs_), 0.0f);
  }

 private:
  const std::span<std::int32_t> tokens_, targets_, positions_, is_token_, halves_;
  const std::span<float> references_;
  std::size_t place_ = 0, pairs_ = 0;
};

/// Writes a source. An empty source becomes one padding token.
void write_source(const std::vector<std::int32_t>& source, const ExampleMemory& memory,
                  std::int32_t padding) {
  const auto tokens = memory.labels("source_tokens"), positions = memory.labels("source_positions");
  require(source.size() <= tokens.size(), "a source must fit in its row");
  std::ranges::copy(source, tokens.begin());
  std::ranges::fill(tokens.subspan(source.size()), padding);
  const auto behind = positions.begin() + std::ssize(source);
  std::iota(positions.begin(), behind, 0);
  std::iota(behind, positions.end(), 0);
  memory.labels("source_lengths")[0] =
      narrow<std::int32_t>(std::max<std::size_t>(1, source.size()));
}

}  // namespace

std::vector<std::vector<std::size_t>> best_fit_decreasing(std::span<const std::int64_t> lengths,
                                                          std::int64_t capacity) {
  const std::vector<std::int64_t> none(lengths.size());
  return best_fit_decreasing(lengths, capacity, {none, 0});
}

std::vector<std::vector<std::size_t>> best_fit_decreasing(std::span<const std::int64_t> lengths,
                                                          std::int64_t capacity,
                                                          const BinSlots& slots) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return lengths[i]; });
  const std::int64_t fewest = lengths.empty() ? 0 : std::ranges::min(slots.of_items);
  struct Bin {
    std::size_t index;
    std::int64_t free_slots;
  };
  std::vector<std::vector<std::size_t>> bins;
  std::multimap<std::int64_t, Bin> room;  // bins with slots left, by remaining capacity
  for (const std::size_t i : order) {
    const std::int64_t needed = slots.of_items[i];
    require(lengths[i] <= capacity && needed <= slots.of_bin, "a packed row must fit in a bin");
    const auto found = std::find_if(room.lower_bound(lengths[i]), room.end(), [&](const auto& bin) {
      return bin.second.free_slots >= needed;
    });
    std::int64_t left = capacity;
    Bin bin{bins.size(), slots.of_bin};
    if (found == room.end()) {
      bins.emplace_back();
    } else {
      left = found->first;
      bin = found->second;
      room.erase(found);
    }
    bins[bin.index].push_back(i);
    bin.free_slots -= needed;
    if (bin.free_slots >= fewest) room.emplace(left - lengths[i], bin);
  }
  return bins;
}

void PackedSequences::set_bins(std::vector<std::vector<std::size_t>> bins,
                               std::span<const std::int64_t> lengths,
                               std::int64_t sequence_length) {
  bins_ = std::move(bins);
  const auto places = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  fill_ = static_cast<double>(places) / static_cast<double>(size() * sequence_length);
}

const std::vector<std::size_t>& PackedSequences::rows_of(std::int64_t sequence) const {
  static const std::vector<std::size_t> none;
  return sequence == kPadding ? none : bins_[static_cast<std::size_t>(sequence)];
}

PackedRows::PackedRows(std::vector<ExampleRow> rows, const Settings& settings)
    : rows_(std::move(rows)), settings_(settings) {
  if (rows_.empty()) throw DataError("there are no rows of examples to train on");
  require(!has_sources() || (!settings.packs && settings.source_length > 0),
          "rows with sources cannot be packed, and need a source length");
  std::vector<std::int64_t> lengths;
  std::vector<std::vector<std::size_t>> single;
  for (const ExampleRow& row : rows_) {
    single.push_back({lengths.size()});
    lengths.push_back(row.places());
  }
  set_bins(settings.packs ? best_fit_decreasing(lengths, settings.sequence_length) : single,
           lengths, settings.sequence_length);
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

void PackedRows::write(std::int64_t sequence, const ExampleMemory& memory) const {
  const std::vector<std::size_t>& rows = rows_of(sequence);
  if (has_sources())
    write_source(rows.empty() ? std::vector<std::int32_t>() : rows_[rows.front()].source, memory,
                 settings_.padding);
  SequenceOfTexts texts(memory);
  for (const std::size_t i : rows) {
    const ExampleRow& row = rows_[i];
    if (row.rejected_at > 0) {
      texts.add_pair(row, settings_.references ? settings_.references->at(i) : PairReference{});
      memory.add_targets(1);
    } else {
      texts.add(row, 0, row.tokens.size(), -1);
      memory.add_targets(static_cast<double>(row.targets()));
    }
  }
  texts.pad(settings_.padding);
}

}  // namespace hybrid_trainer
