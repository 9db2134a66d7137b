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
/// Face's tokenizers does (added_vocabulary.rs). The time is linear in the text: the tokens that begin
/// at each place are found from the text's end backward, by an automaton of the reversed tokens.
/// Source: Aho and Corasick 1975, "Efficient string matching".
class AddedTokens {
 public:
  void add(AddedToken token);
  /// Is to be called when all are added; split may be called then.
  void finish();

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
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  /// A token, and where in the text it begins.
  struct Match {
    std::size_t place = 0;
    std::uint32_t token = 0;
  };
  /// Of the automaton: an end of some token, read backward.
  struct Node {
    std::uint32_t parent = 0;
    std::uint32_t shorter = 0;      // its longest proper suffix that is a node
    std::uint32_t longest = kNone;  // token that is read, of those the longest
    unsigned char byte = 0;         // the last one read
  };
  void note_neighbours(const AddedToken& token);
  void add_nodes(std::uint32_t token);
  std::uint32_t next(std::uint32_t node, char byte) const;
  std::vector<Match> last_to_first(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  bool only_special_ = true;
  bool strips_ = false;                                     // some take the white space beside them
  std::array<bool, 256> ends_{};                            // last bytes
  std::vector<Node> nodes_{Node{}};                         // the first one: nothing is read
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;  // by node << 8 | byte
  std::unordered_set<std::uint64_t> neighbours_;            // characters within a token
  std::unordered_set<char32_t> firsts_;                     // of those that look before themselves
  std::unordered_set<char32_t> lasts_, later_;
};

}  // namespace hybrid_trainer
