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
  /// Merges missing from the vocabulary asked for, because no remaining pair occurs twice.
  std::int64_t missing_merges = 0;
  /// Rare words dropped for lack of memory; a word dropped again counts again.
  std::int64_t forgotten_words = 0;
};

/// Learns a byte-level BPE vocabulary: 256 byte tokens in GPT-2's order, then one token per merge,
/// then <|endoftext|> as the last id. Each merge joins the pair that is most frequent within the
/// words of the corpus; ties go to the smallest pair of ids, so the same texts in any order and on
/// any number of threads give the same vocabulary. If a corpus has more than about a million
/// distinct words, the rarest so far are dropped after a call of add; then the order of the calls
/// matters, but still not the number of threads. Source: Sennrich et al. 2016, "Neural machine
/// translation of rare words with subword units".
class BpeTrainer {
 public:
  static constexpr std::int64_t kSmallestVocabulary = 257;
  static constexpr std::int64_t kLargestVocabulary = 1'000'000;

  /// For the text of the words kept, plus 8 bytes each; learning takes some twenty times that.
  static constexpr std::size_t kWordBytes = std::size_t{16} << 20;

  /// Throws UsageError where vocabulary_size is not in [kSmallestVocabulary, kLargestVocabulary].
  explicit BpeTrainer(std::int64_t vocabulary_size, std::size_t word_bytes = kWordBytes);
  ~BpeTrainer();
  /// Counts the words of some texts, in parallel over the texts.
  void add(std::span<const std::string_view> texts);
  /// Consumes what was counted; nothing may be added afterwards.
  BpeTrainingResult train();

 private:
  struct Words;
  void add_up();
  std::int64_t vocabulary_size_;
  std::size_t word_bytes_;
  std::vector<std::unique_ptr<Words>> counters_;  // one per thread
  std::unique_ptr<Words> words_;                  // of all calls of add
  std::int64_t forgotten_words_ = 0;
};

}  // namespace hybrid_trainer
