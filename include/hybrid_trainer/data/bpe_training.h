#pragma once

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
};

/// Learns a byte-level BPE vocabulary: 256 byte tokens in GPT-2's order, then one token per merge,
/// then <|endoftext|> as the last id. Each merge joins the pair that is most frequent within the
/// words of the corpus; equal counts go to the smallest pair of ids, so the same texts in any order
/// and on any number of threads give the same vocabulary. Source: Sennrich et al. 2016, "Neural
/// machine translation of rare words with subword units".
class BpeTrainer {
 public:
  static constexpr std::int64_t kSmallestVocabulary = 257;
  static constexpr std::int64_t kLargestVocabulary = 1'000'000;

  /// Throws UsageError where vocabulary_size is not in [kSmallestVocabulary, kLargestVocabulary].
  explicit BpeTrainer(std::int64_t vocabulary_size);
  ~BpeTrainer();
  /// Counts the words of some texts, in parallel over the texts.
  void add(std::span<const std::string_view> texts);
  BpeTrainingResult train() const;

 private:
  struct Words;
  std::int64_t vocabulary_size_;
  std::vector<std::unique_ptr<Words>> words_;  // one set of counts per thread
};

}  // namespace hybrid_trainer
