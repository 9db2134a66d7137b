#include "hybrid_trainer/data/batch_order.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {

namespace {

// Third words of the random keys, so that data gets other random numbers than weights and dropout.
constexpr std::uint64_t kOffsetKey = 0x646174610000u;  // "data"
constexpr std::uint64_t kOrderKey = kOffsetKey + 1;

}  // namespace

WindowOrder::WindowOrder(std::int64_t tokens, const BatchSettings& settings,
                         const std::string& name)
    : tokens_(tokens), settings_(settings) {
  require(settings.batch_size >= 1 && settings.sequence_length >= 1,
          "batch size and sequence length are at least 1");
  const std::int64_t length = settings.sequence_length;
  if (tokens < length + 1) {
    throw DataError(concat(name, " has ", tokens,
                           " tokens; one training sequence of data.sequence_length ", length,
                           " takes ", length + 1, ": use more text or a shorter sequence"));
  }
  const std::int64_t usable = is_shuffled() ? tokens - length : tokens - 1;
  windows_ = std::max<std::int64_t>(1, usable / length);
  if (!settings.goes_on) return;
  if (windows_ < settings.batch_size)
    throw DataError(concat(name, " has ", windows_, " sequences of data.sequence_length ", length,
                           ", and data.carry_state wants one for each of the ", settings.batch_size,
                           " rows of a batch: use more text, or shorter or fewer sequences"));
  windows_ -= windows_ % settings.batch_size;
}

std::int64_t WindowOrder::start_of(std::int64_t example) const {
  const std::int64_t length = settings_.sequence_length;
  const auto epoch = static_cast<std::uint64_t>(example / windows_);
  const auto place = static_cast<std::uint64_t>(example % windows_);
  if (settings_.goes_on) {
    const std::int64_t rows = settings_.batch_size, number = example % windows_;
    return (number % rows * (windows_ / rows) + number / rows) * length;
  }
  if (!settings_.shuffle) return static_cast<std::int64_t>(place) * length;
  const std::int64_t offsets = std::min(length, tokens_ - windows_ * length);
  const auto offset =
      random_below({settings_.seed, epoch, kOffsetKey}, 0, static_cast<std::uint64_t>(offsets));
  const auto window = random_permuted({settings_.seed, epoch, kOrderKey}, place,
                                      static_cast<std::uint64_t>(windows_));
  return static_cast<std::int64_t>(offset) + static_cast<std::int64_t>(window) * length;
}

BatchOrder::BatchOrder(std::int64_t tokens, const BatchSettings& settings, const std::string& name)
    : windows_(tokens, settings, name) {
  const BatchShape longest{settings.batch_size, settings.sequence_length};
  Part next{.shape = longest};
  for (const BatchStretch& stretch : settings.stretches) {
    next.shape = stretch.shape;
    require(next.shape.sequence_length >= 1 &&
                longest.sequence_length % next.shape.sequence_length == 0,
            "a stretch's sequences are a whole part of the longest");
    next.pieces = longest.sequence_length / next.shape.sequence_length;
    require(stretch.batches >= 0 && stretch.batches % next.pieces == 0,
            "a stretch uses its windows up");
    require(next.shape.batch_size >= 1 && next.shape.tokens() <= longest.tokens(),
            "a stretch's batches are no larger than the others");
    parts_.push_back(next);
    next.first_batch += stretch.batches;
    next.first_window += stretch.batches / next.pieces * next.shape.batch_size;
  }
  next.shape = longest;
  next.pieces = 1;
  parts_.push_back(next);
}

const BatchOrder::Part& BatchOrder::part_of(std::int64_t batch) const {
  return *std::find_if(parts_.rbegin(), parts_.rend(),
                       [&](const Part& part) { return part.first_batch <= batch; });
}

std::int64_t BatchOrder::start_of(std::int64_t batch, std::int64_t row) const {
  const Part& part = part_of(batch);
  const std::int64_t index = batch - part.first_batch;
  const std::int64_t window = part.first_window + index / part.pieces * part.shape.batch_size + row;
  return windows_.start_of(window) + index % part.pieces * part.shape.sequence_length;
}

}  // namespace hybrid_trainer
