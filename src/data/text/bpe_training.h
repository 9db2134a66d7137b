#pragma once

#include "hybrid_trainer/data/tokenizer.h"

namespace hybrid_trainer {

class TextPipeline;

/// Counts of words: an open-addressed hash table over the words' concatenated text.
class WordCounts {
 public:
  static std::uint32_t hash_of(std::string_view word);
  void add(std::string_view word, std::uint32_t hash, std::int64_t count);
  void add(const WordCounts& other);
  void clear();

  std::int64_t words() const { return static_cast<std::int64_t>(entries_.size()); }
  /// Returns the weight of all words: their text plus a constant per word.
  std::size_t weight() const { return text_.size() + kWordWeight * entries_.size(); }
  /// Drops the rarest words until weight() <= `limit`. Among equally rare words, drops the words
  /// with the highest hashes first. The choice depends only on the words and their counts. Returns
  /// the number of dropped words.
  std::int64_t drop_rarest(std::size_t limit);

  template <class F>
  void for_each(const F& f) const {
    for (const Entry& entry : entries_) f(text_of(entry), entry.count);
  }

 private:
  static constexpr std::size_t kWordWeight = 8;
  struct Entry {
    std::int64_t count;
    std::size_t begin;  // offset in text_
    std::uint32_t size;
    std::uint32_t hash;
  };
  std::string_view text_of(const Entry& entry) const {
    return std::string_view(text_).substr(entry.begin, entry.size);
  }
  bool comes_first(const Entry& a, const Entry& b) const;
  void grow();

  std::string text_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_;  // 0 if free, otherwise 1 + the index in entries_
};

struct BpeTrainingResult {
  std::unique_ptr<Tokenizer> tokenizer;
  std::int64_t distinct_words = 0;
  /// Number of merges that the requested vocabulary lacks because no remaining pair occurs twice.
  std::int64_t missing_merges = 0;
  /// Number of rare words that were dropped to limit memory. A word counts each time it is dropped.
  std::int64_t dropped_words = 0;
};

/// Learns a vocabulary of byte-level BPE or WordPiece. Each merge joins the most frequent pair of
/// tokens within the words of the corpus; on a tie, the pair of the smallest ids. Kinds:
///   kBpe        256 byte tokens in GPT-2's order, then one token per merge, then <|endoftext|>
///   kWordPiece  BERT's special tokens, the lower-case characters of the corpus, these characters
///               with the prefix ## if they continue a word, then one token per merge
/// The same texts give the same vocabulary in any order and on any number of threads. If a corpus
/// has more than about a million distinct words, add drops the rarest words so far. Then the
/// vocabulary depends on the order of the calls, but still not on the number of threads. Source:
/// Sennrich et al. 2016, "Neural machine translation of rare words with subword units"; for
/// WordPiece, tokenizers' WordPieceTrainer.
class BpeTrainer {
 public:
  static constexpr std::int64_t kSmallestVocabulary = 257;
  static constexpr std::int64_t kLargestVocabulary = 1'000'000;

  /// Limit of WordCounts::weight(). Learning takes about twenty times as many bytes.
  static constexpr std::size_t kWordBytes = std::size_t{16} << 20;

  /// Throws UsageError if vocabulary_size is not in [kSmallestVocabulary, kLargestVocabulary].
  explicit BpeTrainer(std::int64_t vocabulary_size, std::size_t word_bytes = kWordBytes,
                      TokenizerKind kind = TokenizerKind::kBpe);
  ~BpeTrainer();
  void add(std::span<const std::string_view> texts);
  /// Trains the tokenizer. Consumes the counts, so add must not be called afterwards. Throws
  /// UsageError if the characters of a kWordPiece do not fit into the vocabulary.
  BpeTrainingResult train();

 private:
  struct Words;
  void add_up();
  BpeTrainingResult train_bytes();
  BpeTrainingResult train_word_pieces();
  std::int64_t vocabulary_size_;
  std::size_t word_bytes_;
  std::unique_ptr<const TextPipeline> pieces_;    // BERT's words; null: GPT-2's words
  std::vector<std::unique_ptr<Words>> counters_;  // one per thread
  std::unique_ptr<Words> words_;                  // words of all calls of add
  std::int64_t dropped_words_ = 0;
};

}  // namespace hybrid_trainer
