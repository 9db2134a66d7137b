#include "hybrid_trainer/data/masked_batches.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "hybrid_trainer/core/narrow.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/core/token_batch.h"

namespace hybrid_trainer {
namespace {

// High halves of the third words of the random keys.
constexpr std::uint64_t kPlaceKey = 0x6D61736Bu;  // "mask"
constexpr std::uint64_t kKindKey = kPlaceKey + 1, kWordKey = kPlaceKey + 2;
constexpr float kMasked = 0.8f, kChanged = 0.9f;  // the others stay

/// Of the random numbers of one sequence.
struct SequenceKey {
  std::uint64_t seed, step, row;
  RandomKey of(std::uint64_t purpose) const { return {seed, step, (purpose << 32) + row}; }
};

void mask_sequence(std::span<std::int32_t> tokens, std::int32_t* targets,
                   const MaskSettings& settings, const SequenceKey& key) {
  const std::uint64_t length = tokens.size();
  std::fill_n(targets, length, kNoTarget);
  const std::int64_t count = masked_tokens(settings.share, std::ssize(tokens));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t at =
        random_permuted(key.of(kPlaceKey), static_cast<std::uint64_t>(i), length);
    targets[at] = tokens[at];
    const float kind = to_unit_float(random_word(key.of(kKindKey), at));
    if (kind < kMasked) {
      tokens[at] = settings.mask_token;
    } else if (kind < kChanged) {
      const auto words = static_cast<std::uint64_t>(settings.words);
      tokens[at] = narrow<std::int32_t>(random_below(key.of(kWordKey), at, words));
    }
  }
}

/// Masks each sequence of a batch of next-token windows, by key_of(row, its tokens).
template <class KeyOf>
Batch masked(Batch batch, const MaskSettings& settings, const KeyOf& key_of) {
  const std::int64_t length = batch.tokens_per_example();
  for (std::int64_t row = 0; row < batch.size(); ++row) {
    const std::span tokens(batch.at("tokens").data<std::int32_t>() + row * length,
                           static_cast<std::size_t>(length));
    mask_sequence(tokens, batch.at("targets").data<std::int32_t>() + row * length, settings,
                  key_of(row, tokens));
  }
  batch.set_targets(static_cast<double>(batch.size() * masked_tokens(settings.share, length)));
  return batch;
}

/// A number that other tokens hardly share (Fowler, Noll and Vo's hash).
std::uint64_t fingerprint(std::span<const std::int32_t> tokens) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const std::int32_t token : tokens)
    hash = (hash ^ std::bit_cast<std::uint32_t>(token)) * 0x100000001B3u;
  return hash;
}

}  // namespace

std::int64_t masked_tokens(double share, std::int64_t length) {
  return std::max<std::int64_t>(1, std::llround(share * static_cast<double>(length)));
}

Batch MaskedBatches::read(std::int64_t batch_index, const Batch& memory) const {
  return masked(source_->read(batch_index, memory), settings_,
                [&](std::int64_t row, std::span<const std::int32_t>) {
                  return SequenceKey{settings_.seed, static_cast<std::uint64_t>(batch_index),
                                     static_cast<std::uint64_t>(row)};
                });
}

Batch MaskedEvaluation::batch(std::int64_t index) {
  return masked(batches_->batch(index), settings_,
                [](std::int64_t, std::span<const std::int32_t> tokens) {
                  return SequenceKey{0, fingerprint(tokens), 0};
                });
}

}  // namespace hybrid_trainer
