#include "hybrid_trainer/fine_tuning/packed_rows.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {
namespace {

constexpr std::uint64_t kSequenceKey = 0x726F77730000u;  // "rows"

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
  for (std::size_t i = 0; i < rows_.size() && !settings.packs; ++i) bins_.push_back({i});
  if (!settings.packs) return;
  std::vector<std::int64_t> lengths;
  for (const ExampleRow& row : rows_) lengths.push_back(std::ssize(row.tokens) - 1);
  bins_ = best_fit_decreasing(lengths, settings.sequence_length);
}

double PackedRows::fill() const {
  std::int64_t places = 0;
  for (const ExampleRow& row : rows_) places += std::ssize(row.tokens) - 1;
  return static_cast<double>(places) / static_cast<double>(sequences() * settings_.sequence_length);
}

const std::vector<std::size_t>& PackedRows::rows_of(std::int64_t index, std::int64_t row) const {
  const auto example = static_cast<std::uint64_t>(index * settings_.batch_size + row);
  const auto count = static_cast<std::uint64_t>(bins_.size());
  if (!settings_.shuffle) return bins_[example % count];
  return bins_[random_permuted({settings_.seed, example / count, kSequenceKey}, example % count,
                               count)];
}

/// Writes sequence `at` of the batch; returns how many targets it has.
std::int64_t PackedRows::write(const std::vector<std::size_t>& rows, const Batch& batch,
                               std::int64_t at) const {
  const std::int64_t length = settings_.sequence_length;
  std::int32_t* tokens = batch.at("tokens").data<std::int32_t>() + at * length;
  std::int32_t* targets = batch.at("targets").data<std::int32_t>() + at * length;
  std::int32_t* positions = batch.at("positions").data<std::int32_t>() + at * length;
  std::int64_t place = 0, learnt = 0;
  for (const std::size_t i : rows) {
    const ExampleRow& row = rows_[i];
    for (std::size_t t = 0; t + 1 < row.tokens.size(); ++t, ++place) {
      tokens[place] = row.tokens[t];
      targets[place] = row.learnt[t + 1] ? row.tokens[t + 1] : kNoTarget;
      positions[place] = static_cast<std::int32_t>(t);
      learnt += row.learnt[t + 1] ? 1 : 0;
    }
  }
  std::fill(tokens + place, tokens + length, settings_.padding);
  std::fill(targets + place, targets + length, kNoTarget);
  std::iota(positions + place, positions + length, 0);
  return learnt;
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
      memory_(empty_token_batch(
          {std::min(settings.batch_size, rows_.sequences()), settings.sequence_length}, true,
          stream)) {}

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
