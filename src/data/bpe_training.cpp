#include "hybrid_trainer/data/bpe_training.h"

#include <algorithm>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "bpe_model.h"
#include "byte_symbols.h"
#include "hybrid_trainer/core/error.h"
#include "pair_counts.h"
#include "parallel.h"
#include "word_splitter.h"

namespace hybrid_trainer {

namespace {

/// Longer words, such as a line of one million dashes, are counted as several.
constexpr std::size_t kLongestWord = 256;
/// A token for a pair that comes once only remembers the corpus.
constexpr std::int64_t kSmallestCount = 2;

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};
using WordCounts = std::unordered_map<std::string, std::int64_t, TextHash, std::equal_to<>>;

void add_word(WordCounts& counts, std::string_view word, std::int64_t count) {
  const auto found = counts.find(word);
  if (found != counts.end()) {
    found->second += count;
  } else {
    counts.emplace(word, count);
  }
}

BpeModel model_of_bytes() {
  BpeModel model;
  for (const std::uint8_t byte : bytes_by_symbol()) {
    model.byte_ids[byte] = static_cast<std::int32_t>(model.tokens.size());
    model.tokens.emplace_back(1, static_cast<char>(byte));
  }
  return model;
}

/// Adds up to `wanted` merges; gives the number added.
std::int64_t learn_merges(BpeModel& model, PairCounts& pairs, std::int64_t wanted) {
  std::unordered_set<std::string> known(model.tokens.begin(), model.tokens.end());
  std::int64_t added = 0;
  while (added < wanted) {
    const PairCounts::Pair pair = pairs.take_most_frequent();
    if (pair.count < kSmallestCount) break;
    std::string bytes = model.tokens[static_cast<std::size_t>(pair.left)] +
                        model.tokens[static_cast<std::size_t>(pair.right)];
    if (!known.insert(bytes).second) continue;  // another pair spells the same token already
    const auto joined = static_cast<std::int32_t>(model.tokens.size());
    model.tokens.push_back(std::move(bytes));
    model.merges.push_back({pair.left, pair.right, joined});
    pairs.join(pair, joined);
    ++added;
  }
  return added;
}

}  // namespace

struct BpeTrainer::Words {
  WordSplitter splitter;
  WordCounts counts;
};

BpeTrainer::BpeTrainer(std::int64_t vocabulary_size) : vocabulary_size_(vocabulary_size) {
  if (vocabulary_size < kSmallestVocabulary || vocabulary_size > kLargestVocabulary) {
    throw UsageError(concat("vocabulary size (--vocab-size) is ", vocabulary_size, "; want ",
                            kSmallestVocabulary, " (256 bytes and ", kEndOfText, ") to ",
                            kLargestVocabulary));
  }
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add(std::span<const std::string_view> texts) {
  while (words_.size() < static_cast<std::size_t>(threads())) {
    words_.push_back(std::make_unique<Words>());
  }
  parallel_for(static_cast<std::int64_t>(texts.size()), [&](std::int64_t i, int worker) {
    Words& words = *words_[static_cast<std::size_t>(worker)];
    words.splitter.start(texts[static_cast<std::size_t>(i)]);
    for (auto word = words.splitter.next(); !word.empty(); word = words.splitter.next()) {
      for (std::size_t begin = 0; begin < word.size(); begin += kLongestWord) {
        add_word(words.counts, word.substr(begin, kLongestWord), 1);
      }
    }
  });
}

BpeTrainingResult BpeTrainer::train() const {
  WordCounts counts;
  for (const auto& words : words_) {
    for (const auto& [word, count] : words->counts) add_word(counts, word, count);
  }
  BpeModel model = model_of_bytes();
  PairCounts pairs(model.byte_ids);
  for (const auto& [word, count] : counts) pairs.add_word(word, count);

  const std::int64_t wanted = vocabulary_size_ - kSmallestVocabulary;
  BpeTrainingResult result;
  result.missing_merges = wanted - learn_merges(model, pairs, wanted);
  result.distinct_words = static_cast<std::int64_t>(counts.size());
  model.end_of_text = static_cast<std::int32_t>(model.tokens.size());
  model.special = {*model.end_of_text};
  model.tokens.emplace_back(kEndOfText);
  result.tokenizer = make_bpe_tokenizer(std::move(model));
  return result;
}

}  // namespace hybrid_trainer
