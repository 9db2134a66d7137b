#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace hybrid_trainer {

/// A token that is found in a text as a whole, before anything else cuts the text.
struct AddedToken {
  std::string content;  // what is found: normalized, where the text is by then
  std::int32_t id = 0;
  bool single_word = false;  // not beside a character of a word
  bool lstrip = false;       // with the white space before
  bool rstrip = false;       // with the white space behind
  bool special = false;
};

/// Finds added tokens from left to right, of those that begin at one place the longest, as Hugging
/// Face's tokenizers does (added_vocabulary.rs).
class AddedTokens {
 public:
  void add(AddedToken token);

  /// A piece of a text: one of the tokens, or the text between two.
  struct Piece {
    std::string_view text;
    std::optional<std::int32_t> id;
  };
  /// The pieces of a text. With `skips_special`, special ones are found, but are text.
  std::vector<Piece> split(std::string_view text, bool skips_special) const;

  /// Whether split finds none in any text.
  bool finds_nothing(bool skips_special) const {
    return skips_special ? only_special_ : tokens_.empty();
  }
  /// Whether no token, nor what it depends on, may lie on both sides of a cut between these, and no
  /// token ends there: text behind one is not a continuation.
  bool may_cut(char32_t before, char32_t after) const;
  /// Whether a token has this character, and not as its first one.
  bool goes_on_with(char32_t character) const { return later_.contains(character); }

 private:
  struct Match {
    std::size_t bytes = 0;
    std::size_t token = 0;
  };
  Match longest_at(std::string_view text, std::size_t place) const;

  std::vector<AddedToken> tokens_;
  bool only_special_ = true;
  bool strips_ = false;                                     // some take the white space beside them
  std::array<bool, 256> begins_{};                          // first bytes
  std::unordered_map<std::uint64_t, std::uint32_t> nodes_;  // of a trie, by parent << 8 | byte
  std::unordered_map<std::uint32_t, std::size_t> ends_;     // node to token
  std::unordered_set<std::uint64_t> neighbours_;            // characters within a token
  std::unordered_set<char32_t> firsts_;                     // of those that look before themselves
  std::unordered_set<char32_t> lasts_, later_;
};

}  // namespace hybrid_trainer
