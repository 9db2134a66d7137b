#include "hybrid_trainer/data/window_order.h"

#include <algorithm>
#include <bit>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {

namespace {

// Third words of the random keys, so that data gets other random numbers than weights and dropout.
constexpr std::uint64_t kOffsetKey = 0x646174610000u;  // "data"
constexpr std::uint64_t kOrderKey = kOffsetKey + 1;
constexpr int kRounds = 6;

/// Position of element i in a random permutation of [0, count): a Feistel network over the next
/// even number of bits, iterated until the result is below count (cycle walking); on average less
/// than four times. Source: Black and Rogaway 2002, "Ciphers with arbitrary finite domains".
std::uint64_t permute(std::uint64_t i, std::uint64_t count, const RandomKey& key) {
  const int half_bits = std::max(1, static_cast<int>(std::bit_width(count - 1) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  do {
    std::uint64_t left = i >> half_bits, right = i & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = left ^ (philox(key, round << 48 | right)[0] & mask);
      left = right;
      right = mixed;
    }
    i = left << half_bits | right;
  } while (i >= count);
  return i;
}

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
  const std::int64_t usable = settings.shuffle ? tokens - length : tokens - 1;
  windows_ = std::max<std::int64_t>(1, usable / length);
}

std::int64_t WindowOrder::start_of(std::int64_t example) const {
  const std::int64_t length = settings_.sequence_length;
  const auto epoch = static_cast<std::uint64_t>(example / windows_);
  const auto place = static_cast<std::uint64_t>(example % windows_);
  if (!settings_.shuffle) return static_cast<std::int64_t>(place) * length;
  const std::int64_t offsets = std::min(length, tokens_ - windows_ * length);
  const auto offset =
      random_below({settings_.seed, epoch, kOffsetKey}, 0, static_cast<std::uint64_t>(offsets));
  const auto window =
      permute(place, static_cast<std::uint64_t>(windows_), {settings_.seed, epoch, kOrderKey});
  return static_cast<std::int64_t>(offset) + static_cast<std::int64_t>(window) * length;
}

}  // namespace hybrid_trainer
