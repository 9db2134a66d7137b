#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hybrid_trainer {

/// Joins the neighbours left and right into the token `joined`. The rank is the place in the list.
struct BpeMerge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t joined = 0;
};

/// The merges by pair, in an open-addressed hash table. Of a pair that stands there twice, the last
/// one counts.
class MergeTable {
 public:
  struct Rule {
    std::int32_t rank = kNone;
    std::int32_t joined = 0;
  };
  static constexpr std::int32_t kNone = INT32_MAX;

  explicit MergeTable(const std::vector<BpeMerge>& merges);
  /// Rank kNone if the pair is never joined.
  Rule find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].rule;
      if (slots_[i].key == kFree) return {};
    }
  }

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kFree;
    Rule rule;
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{std::bit_cast<std::uint32_t>(left)} << 32 |
           std::bit_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & mask_;
  }
  std::size_t mask_;
  std::vector<Slot> slots_;
};

/// What a byte-pair encoding makes of words. A word begins as symbols: its bytes, or its characters,
/// of which those without a token are their bytes' tokens, if all have one. What still has no token
/// is the unknown one, or is left out where the tokenizer names none, as by Hugging Face's
/// tokenizers. A byte that is not UTF-8 is a character without a token.
struct BpeVocabulary {
  static constexpr std::int32_t kNoId = -1;
  bool by_bytes = true;
  std::array<std::int32_t, 256>
      byte_ids{};  // or kNoId; by characters: "<0x00>" …, for byte_fallback
  std::unordered_map<char32_t, std::int32_t> character_ids;
  std::optional<std::int32_t> unknown;
  std::string missing_unknown;  // an unk_token that has no id: what needs it is refused
  bool fuses_unknown = false;   // unknown tokens that follow each other are one
  std::vector<BpeMerge> merges;
  std::vector<std::string> tokens;  // what each id spells: bytes, or UTF-8 and "<0x00>" …
  bool ignores_merges = false;      // a word that is a token is that token
};

class WordModel {
 public:
  explicit WordModel(BpeVocabulary vocabulary);
  const MergeTable& merges() const { return merges_; }
  bool by_bytes() const { return vocabulary_.by_bytes; }
  bool ignores_merges() const { return vocabulary_.ignores_merges; }
  /// The token that a whole word is, before any merge.
  std::optional<std::int32_t> whole_word(std::string_view word) const;
  /// Appends the symbols that a word begins as. Throws DataError where one needs an unk_token that has
  /// no id.
  void append_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const;
  /// Whether no merge, nor anything else, can go across the border of two neighbouring characters.
  bool may_divide(std::string_view before, std::string_view after) const;

 private:
  /// First and last symbol of a character; kNoId where it is unknown.
  std::pair<std::int32_t, std::int32_t> ends_of(std::string_view character) const;
  std::int32_t id_of(std::string_view character) const;
  bool has_all_bytes(std::string_view character) const;
  bool bytes_stand_alone() const;
  std::vector<BpeMerge> borders() const;

  BpeVocabulary vocabulary_;
  MergeTable merges_;
  bool divides_ = true;
  std::unique_ptr<std::atomic<bool>> has_warned_ = std::make_unique<std::atomic<bool>>(false);
  MergeTable borders_;  // pairs of symbols that some merge joins the tokens of
  std::unordered_map<std::string_view, std::int32_t> words_;
};

}  // namespace hybrid_trainer
