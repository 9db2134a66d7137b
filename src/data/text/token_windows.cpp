#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/data/token_dataset.h"
#include "src/core/masked_batch.h"
#include "src/core/narrow.h"

namespace hybrid_trainer {

namespace {

// Third words of the random keys, distinct from the keys of weights and dropout.
constexpr std::uint64_t kShiftKey = 0x646174610000u;  // "data"
constexpr std::uint64_t kOrderKey = kShiftKey + 1;
// Upper halves of the third words of the masks' keys.
constexpr std::uint64_t kPlaceKey = 0x6D61736Bu;  // "mask"
constexpr std::uint64_t kKindKey = kPlaceKey + 1, kWordKey = kPlaceKey + 2;
constexpr float kMasked = 0.8f, kChanged = 0.9f;  // the other tokens stay

std::string name_of(const TokenDataset& tokens) {
  return concat("split ", name_of(tokens.split()), " of ", tokens.folder().string());
}

struct SequenceKey {
  std::uint64_t seed, step, row;
  RandomKey of(std::uint64_t purpose) const { return {seed, step, (purpose << 32) + row}; }
};

/// Returns up to `count` random positions of ordinary tokens.
std::vector<std::uint64_t> chosen_tokens(std::span<const std::int32_t> tokens,
                                         const MaskSettings& masks, std::int64_t count,
                                         const SequenceKey& key) {
  std::vector<std::uint64_t> chosen;
  for (std::uint64_t i = 0; std::ssize(chosen) < count && i < tokens.size(); ++i) {
    const std::uint64_t at = random_permuted(key.of(kPlaceKey), i, tokens.size());
    if (!std::ranges::binary_search(masks.special, tokens[at])) chosen.push_back(at);
  }
  return chosen;
}

/// Returns up to `count` positions: all tokens of random words. Skips words that are too long for
/// the rest of the count. Returns random positions if all words are longer than `count`.
std::vector<std::uint64_t> chosen_words(std::span<const std::int32_t> tokens,
                                        const MaskSettings& masks, std::int64_t count,
                                        const SequenceKey& key) {
  struct Word {
    std::uint64_t begin, end;
  };
  std::vector<Word> words;
  const auto continues = [&](std::int32_t token) {
    const auto id = static_cast<std::size_t>(token);
    return id < masks.continues.size() && masks.continues[id];
  };
  bool follows_word = false;
  for (std::uint64_t i = 0; i < tokens.size(); ++i) {
    const bool is_special = std::ranges::binary_search(masks.special, tokens[i]);
    if (!is_special && !(follows_word && continues(tokens[i]))) words.push_back({i, i});
    if (!is_special) words.back().end = i + 1;
    follows_word = !is_special;
  }
  std::vector<std::uint64_t> chosen;
  for (std::uint64_t i = 0; std::ssize(chosen) < count && i < words.size(); ++i) {
    const Word word = words[random_permuted(key.of(kPlaceKey), i, words.size())];
    if (chosen.size() + (word.end - word.begin) > static_cast<std::size_t>(count)) continue;
    for (std::uint64_t at = word.begin; at < word.end; ++at) chosen.push_back(at);
  }
  return chosen.empty() ? chosen_tokens(tokens, masks, count, key) : chosen;
}

/// Masks random tokens or words, whose ids become targets (empty_masked_batch), and returns their number.
std::int64_t mask_sequence(const ExampleMemory& memory, const MaskSettings& masks,
                           const SequenceKey& key) {
  const std::span<std::int32_t> tokens = memory.labels("tokens"), ends = memory.labels("ends"),
                                targets = memory.labels("targets");
  std::ranges::fill(ends, 0);
  std::ranges::fill(targets, kNoTarget);
  const std::int64_t count =
      std::min(masked_tokens(masks.share, std::ssize(tokens)), std::ssize(ends));
  std::vector<std::uint64_t> chosen = masks.continues.empty()
                                          ? chosen_tokens(tokens, masks, count, key)
                                          : chosen_words(tokens, masks, count, key);
  std::ranges::sort(chosen);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::uint64_t at = chosen[i];
    ends[i] = narrow<std::int32_t>(at + 1);
    targets[i] = tokens[at];
    const float kind = to_unit_float(random_word(key.of(kKindKey), at));
    if (kind < kMasked) {
      tokens[at] = masks.mask_token;
    } else if (kind < kChanged) {
      const auto words = static_cast<std::uint64_t>(masks.words);
      tokens[at] = narrow<std::int32_t>(random_below(key.of(kWordKey), at, words));
    }
  }
  return std::ssize(chosen);
}

/// Returns a hash of the tokens (Fowler, Noll and Vo).
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

TokenWindows::TokenWindows(const TokenDataset& tokens, const Settings& settings)
    : tokens_(&tokens), settings_(settings) {
  const std::int64_t count = tokens.tokens(), length = settings.sequence_length;
  require(length >= 1, "a window has at least one token");
  if (count < length + 1) {
    throw DataError(concat(name_of(tokens), " has ", count,
                           " tokens; one training sequence of data.sequence_length ", length,
                           " needs ", length + 1, ": use more text or a shorter sequence"));
  }
  windows_ = std::max<std::int64_t>(1, (settings.shifts ? count - length : count - 1) / length);
}

std::shared_ptr<const TokenWindows> TokenWindows::for_evaluation(
    const TokenDataset& tokens, std::int64_t sequence_length,
    const std::optional<MaskSettings>& masks) {
  if (tokens.tokens() < 2) {
    throw DataError(concat(name_of(tokens), " has ", tokens.tokens(),
                           " tokens; an evaluation needs at least 2"));
  }
  return std::make_shared<TokenWindows>(
      tokens,
      Settings{.sequence_length = std::min(sequence_length, tokens.tokens() - 1), .masks = masks});
}

std::uint64_t TokenWindows::order_key() const { return kOrderKey; }

std::int64_t TokenWindows::rest() const {
  return settings_.shifts ? 0 : (tokens_->tokens() - 1) % settings_.sequence_length;
}

Batch TokenWindows::empty_batch(std::int64_t examples, const Stream& stream) const {
  const Shape tokens{examples, settings_.sequence_length};
  if (!settings_.masks) return empty_token_batch(tokens, false, stream);
  return empty_masked_batch(tokens, masked_tokens(settings_.masks->share, tokens[1]), stream);
}

std::int64_t TokenWindows::shift_of(std::uint64_t epoch) const {
  if (!settings_.shifts) return 0;
  const std::int64_t length = settings_.sequence_length;
  const std::int64_t shifts = std::min(length, tokens_->tokens() - windows_ * length);
  return static_cast<std::int64_t>(
      random_below({settings_.seed, epoch, kShiftKey}, 0, static_cast<std::uint64_t>(shifts)));
}

void TokenWindows::write(std::int64_t number, const ExampleMemory& memory) const {
  const std::span<std::int32_t> tokens = memory.labels("tokens");
  const auto& draw = memory.draw();
  const std::int64_t length = std::ssize(tokens);
  std::int64_t start = number * settings_.sequence_length;
  if (draw) start += shift_of(draw->epoch) + draw->piece * length;
  tokens_->read(start, tokens);
  if (!settings_.masks) {
    const std::span<std::int32_t> targets = memory.labels("targets");
    std::ranges::copy(tokens.subspan(1), targets.begin());
    return tokens_->read(start + length, targets.last(1));
  }
  const SequenceKey key = draw
                              ? SequenceKey{settings_.seed, static_cast<std::uint64_t>(draw->batch),
                                            static_cast<std::uint64_t>(memory.row())}
                              : SequenceKey{0, fingerprint(tokens), 0};
  memory.add_targets(static_cast<double>(mask_sequence(memory, *settings_.masks, key)));
}

}  // namespace hybrid_trainer
