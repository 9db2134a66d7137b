#include "hybrid_trainer/data/bpe_training.h"

#include <array>
#include <string>
#include <unordered_set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/narrow.h"
#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/core/thread_team.h"
#include "hybrid_trainer/files/utf8.h"
#include "src/data/bpe_files.h"
#include "src/data/byte_symbols.h"
#include "src/data/pair_counts.h"
#include "src/data/word_counts.h"
#include "src/data/word_splitter.h"

namespace hybrid_trainer {

namespace {

/// Longer words are counted as several.
constexpr std::size_t kLongestPart = 256;
/// A token for a pair that occurs only once would just memorise the corpus.
constexpr std::int64_t kSmallestCount = 2;

/// Words partitioned by hash, so that threads can add up counts part by part.
class PartedCounts {
 public:
  static constexpr std::size_t kParts = 16;
  void add(std::string_view word) {
    const std::uint32_t hash = WordCounts::hash_of(word);
    parts_[hash >> 28].add(word, hash, 1);
  }
  WordCounts& part(std::size_t i) { return parts_[i]; }

 private:
  std::array<WordCounts, kParts> parts_;
};

BpeModel model_of_bytes() {
  BpeModel model;
  for (const std::uint8_t byte : bytes_by_symbol()) {
    model.byte_ids[byte] = narrow<std::int32_t>(model.tokens.size());
    model.tokens.emplace_back(1, static_cast<char>(byte));
  }
  return model;
}

/// Adds up to `wanted` merges; returns how many.
std::int64_t learn_merges(BpeModel& model, PairCounts& pairs, std::int64_t wanted) {
  std::unordered_set<std::string> known(model.tokens.begin(), model.tokens.end());
  std::int64_t added = 0;
  while (added < wanted) {
    const PairCounts::Pair pair = pairs.take_most_frequent();
    if (pair.count < kSmallestCount) break;
    std::string bytes = model.tokens[static_cast<std::size_t>(pair.left)] +
                        model.tokens[static_cast<std::size_t>(pair.right)];
    if (!known.insert(bytes).second) continue;  // another pair spells the same token already
    const auto joined = narrow<std::int32_t>(model.tokens.size());
    model.tokens.push_back(std::move(bytes));
    model.merges.push_back({pair.left, pair.right, joined});
    pairs.join(pair, joined);
    ++added;
  }
  return added;
}

}  // namespace

struct BpeTrainer::Words {
  PartedCounts counts;
};

BpeTrainer::BpeTrainer(std::int64_t vocabulary_size, std::size_t word_bytes)
    : vocabulary_size_(vocabulary_size),
      word_bytes_(word_bytes),
      words_(std::make_unique<Words>()) {
  if (vocabulary_size < kSmallestVocabulary || vocabulary_size > kLargestVocabulary) {
    throw UsageError(concat("vocabulary size (--vocab-size) is ", vocabulary_size, "; want ",
                            kSmallestVocabulary, " (256 bytes and ", kEndOfText, ") to ",
                            kLargestVocabulary));
  }
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add(std::span<const std::string_view> texts) {
  while (counters_.size() < static_cast<std::size_t>(threads())) {
    counters_.push_back(std::make_unique<Words>());
  }
  run_tasks(std::ssize(texts), [&](std::int64_t worker, std::int64_t i) {
    Words& counter = *counters_[static_cast<std::size_t>(worker)];
    const std::string_view text = texts[static_cast<std::size_t>(i)];
    for_each_word(WordPattern::kGpt2, text, [&](std::string_view word) {
      while (!word.empty()) {
        const std::size_t bytes = whole_characters(word, kLongestPart);
        counter.counts.add(word.substr(0, bytes));
        word.remove_prefix(bytes);
      }
    });
  });
  add_up();
}

/// All words are added up before the rarest are dropped, whatever the number of threads.
void BpeTrainer::add_up() {
  constexpr std::size_t kParts = PartedCounts::kParts;
  std::array<std::int64_t, kParts> forgotten{};
  run_tasks(kParts, [&](std::int64_t, std::int64_t i) {
    const auto place = static_cast<std::size_t>(i);
    WordCounts& words = words_->counts.part(place);
    for (const auto& counter : counters_) {
      words.add(counter->counts.part(place));
      counter->counts.part(place).clear();
    }
    if (words.weight() <= word_bytes_ / kParts) return;
    forgotten[place] = words.forget_rarest(word_bytes_ / kParts / 2);
  });
  for (const std::int64_t words : forgotten) forgotten_words_ += words;
}

BpeTrainingResult BpeTrainer::train() {
  counters_.clear();
  BpeTrainingResult result;
  BpeModel model = model_of_bytes();
  PairCounts pairs(model.byte_ids);
  for (std::size_t i = 0; i < PartedCounts::kParts; ++i) {
    const WordCounts words = std::move(words_->counts.part(i));
    words.for_each([&](std::string_view word, std::int64_t count) { pairs.add_word(word, count); });
    result.distinct_words += words.words();
  }
  const std::int64_t wanted = vocabulary_size_ - kSmallestVocabulary;
  result.missing_merges = wanted - learn_merges(model, pairs, wanted);
  result.forgotten_words = forgotten_words_;
  model.tokens.emplace_back(kEndOfText);
  result.tokenizer = make_bpe_tokenizer(model);
  return result;
}

}  // namespace hybrid_trainer
