#pragma once

#include <atomic>
#include <bit>
#include <boost/unordered/unordered_flat_map.hpp>
#include <mutex>

#include "src/data/text/pipeline_tokenizer.h"

namespace hybrid_trainer {

/// A merge of two adjacent tokens to `joined`. Its rank is its index in the list.
struct BpeMerge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t joined = 0;
};

/// Merges by their pairs of tokens. The last merge of a repeated pair is used.
class MergeTable {
 public:
  struct Rule {
    std::int32_t rank = kNone;
    std::int32_t joined = 0;
  };
  static constexpr std::int32_t kNone = INT32_MAX;

  explicit MergeTable(const std::vector<BpeMerge>& merges);
  /// Returns the merge of a pair, with rank kNone if the pair is never joined.
  Rule find(std::int32_t left, std::int32_t right) const {
    const auto found = rules_.find(key_of(left, right));
    return found == rules_.end() ? Rule{} : found->second;
  }

 private:
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{std::bit_cast<std::uint32_t>(left)} << 32 |
           std::bit_cast<std::uint32_t>(right);
  }
  boost::unordered_flat_map<std::uint64_t, Rule> rules_;
};

/// Vocabulary of a byte-pair encoding of words. A word starts as symbols: its bytes, or its
/// characters. A character without a token becomes the tokens of its bytes if all of these have
/// one. Otherwise it becomes the unknown token. If the tokenizer has no unknown token, the
/// character is omitted, as in Hugging Face's tokenizers. A byte that is not UTF-8 is a character
/// without a token.
struct BpeVocabulary {
  static constexpr std::int32_t kNoId = -1;
  bool by_bytes = true;
  std::array<std::int32_t, 256>
      /// kNoId if a byte has no token; for characters, the tokens "<0x00>" … of byte_fallback.
      byte_ids{};
  std::unordered_map<char32_t, std::int32_t> character_ids;
  std::optional<std::int32_t> unknown;
  std::string missing_unknown;  // an unk_token without an id; text that needs it is rejected
  bool fuses_unknown = false;   // consecutive unknown tokens become one
  std::vector<BpeMerge> merges;
  std::vector<std::string> tokens;  // text of each id: bytes, or UTF-8 and "<0x00>" …
  bool ignores_merges = false;      // a word equal to a token becomes that token
};

class WordModel {
 public:
  explicit WordModel(BpeVocabulary vocabulary);
  const MergeTable& merges() const { return merges_; }
  bool by_bytes() const { return vocabulary_.by_bytes; }
  bool ignores_merges() const { return vocabulary_.ignores_merges; }
  /// Returns the token that equals a whole word. Returns nullopt unless ignores_merges().
  std::optional<std::int32_t> whole_word(std::string_view word) const;
  /// Appends a word's initial symbols. Throws DataError if it needs an unk_token without an id.
  void append_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const;
  /// Returns whether a word may be divided between two characters, because no merge can join them.
  bool may_divide(std::string_view before, std::string_view after) const;

 private:
  std::pair<std::int32_t, std::int32_t> ends_of(std::string_view character) const;
  std::int32_t id_of(std::string_view character) const;
  bool has_all_bytes(std::string_view character) const;
  bool bytes_are_separate() const;
  std::vector<BpeMerge> borders() const;

  BpeVocabulary vocabulary_;
  MergeTable merges_;
  bool splits_ = true;
  std::unique_ptr<std::atomic<bool>> has_warned_ = std::make_unique<std::atomic<bool>>(false);
  MergeTable borders_;  // pairs of symbols between which a merge may join two tokens
  std::unordered_map<std::string_view, std::int32_t> words_;
};

/// A byte-level BPE trained within GPT-2's words. The last id is the end-of-text token.
struct BpeModel {
  std::vector<std::string> tokens;  // bytes of each id; for the end-of-text token its text
  std::array<std::int32_t, 256> byte_ids{};
  std::vector<BpeMerge> merges;
};

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

class BpeTokenizer : public PipelineTokenizer {
 public:
  BpeTokenizer(TokenizerPipeline pipeline, BpeVocabulary vocabulary,
               std::optional<std::int32_t> end_of_text, TokenizerFiles files);
  ~BpeTokenizer() override;
  TokenizerKind kind() const override { return TokenizerKind::kBpe; }
  void append_tokens(std::string_view text, std::vector<std::int32_t>& ids, TextStart start,
                     ControlText control) const override;
  std::size_t last_split_point(std::string_view text, std::size_t first) const override;

 private:
  struct Scratch;
  std::unique_ptr<Scratch> take_scratch() const;
  void give_back(std::unique_ptr<Scratch> scratch) const;
  bool may_cut(std::string_view before, std::string_view after) const;

  WordModel model_;
  mutable std::mutex mutex_;
  /// Unused scratch memory; at most one for each concurrent call so far.
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace hybrid_trainer
