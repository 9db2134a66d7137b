#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "hybrid_trainer/data/tokenizer.h"

namespace hybrid_trainer {

struct BpeTrainingResult {
  std::unique_ptr<Tokenizer> tokenizer;
  std::int64_t distinct_words = 0;
  /// Merges that the vocabulary asked for and the corpus has no pair for: no remaining pair occurs
  /// twice.
  std::int64_t missing_merges = 0;
  /// Rare words that there was no memory for; one that came again counts again.
  std::int64_t forgotten_words = 0;
};

/// Learns a byte-level BPE vocabulary: 256 byte tokens in GPT-2's order, then one token per merge,
/// then <|endoftext|> as the last id. Each merge joins the pair that is most frequent within the
/// words of the corpus; equal counts go to the smallest pair of ids, so the same texts in any order
/// and on any number of threads give the same vocabulary. Where a corpus has more than about a
/// million different words, the rarest so far are forgotten after a call of add; then the order of
/// the calls matters, the number of threads still not. Source: Sennrich et al. 2016, "Neural
/// machine translation of rare words with subword units".
class BpeTrainer {
 public:
  static constexpr std::int64_t kSmallestVocabulary = 257;
  static constexpr std::int64_t kLargestVocabulary = 1'000'000;

  /// Text of the words that are kept, and 8 bytes for each; learning takes some twenty times that.
  static constexpr std::size_t kWordBytes = std::size_t{16} << 20;

  /// Throws UsageError where vocabulary_size is not in [kSmallestVocabulary, kLargestVocabulary].
  explicit BpeTrainer(std::int64_t vocabulary_size, std::size_t word_bytes = kWordBytes);
  ~BpeTrainer();
  /// Counts the words of some texts, in parallel over the texts.
  void add(std::span<const std::string_view> texts);
  /// Takes what was counted; nothing may be added after.
  BpeTrainingResult train();

 private:
  struct Counter;
  struct Words;
  void add_up();
  std::int64_t vocabulary_size_;
  std::size_t word_bytes_;
  std::vector<std::unique_ptr<Counter>> counters_;  // one per thread
  std::unique_ptr<Words> words_;                    // of all calls of add
  std::int64_t forgotten_words_ = 0;
};

}  // namespace hybrid_trainer
