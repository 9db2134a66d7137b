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

/// A token that is matched before the text is split into words.
struct AddedToken {
  std::string content;  // text of the token; normalized if the token is found after the normalizer
  std::int32_t id = 0;
  bool single_word = false;  // the token does not match next to a word character
  bool lstrip = false;       // the token includes white space before it
  bool rstrip = false;       // the token includes white space after it
  bool special = false;
};

/// Finds added tokens from left to right, the longest at each position, like Hugging Face's
/// tokenizers. Takes linear time: an automaton of the reversed tokens scans the text from its end.
/// Source: Aho and Corasick 1975, "Efficient string matching".
class AddedTokens {
 public:
  void add(AddedToken token);
  /// Builds the automaton. Must be called after the last `add` and before `split`.
  void finish();

  struct Piece {
    std::string_view text;
    std::optional<std::int32_t> id;
  };
  /// Splits a text into pieces. With `skips_special`, special tokens remain text.
  std::vector<Piece> split(std::string_view text, bool skips_special) const;

  /// Returns whether split never finds a token.
  bool matches_nothing(bool skips_special) const {
    return skips_special ? only_special_ : tokens_.empty();
  }
  /// Returns whether a text may be cut between these characters. Returns false if a token or the
  /// condition of a token could span the cut. Also returns false if a token could end there,
  /// because the text after a token is not a continuation.
  bool may_cut(char32_t before, char32_t after) const;
  /// Returns whether a token contains this character after its first one.
  bool continues_with(char32_t character) const { return later_characters_.contains(character); }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Match {
    std::size_t place = 0;
    std::uint32_t token = 0;
  };
  /// Node of the automaton: a suffix of some token, read backward.
  struct Node {
    std::uint32_t parent = 0;
    std::uint32_t shorter = 0;      // longest proper suffix that is a node
    std::uint32_t longest = kNone;  // longest token that ends at this node
    unsigned char byte = 0;         // last byte read
  };
  void add_neighbors(const AddedToken& token);
  void add_nodes(std::uint32_t token);
  std::uint32_t next(std::uint32_t node, char byte) const;
  std::vector<Match> last_to_first(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  bool only_special_ = true;
  bool strips_ = false;              // some tokens include the neighboring white space
  std::array<bool, 256> ends_{};     // last bytes of tokens
  std::vector<Node> nodes_{Node{}};  // the first one is the root
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;
  std::unordered_set<std::uint64_t> neighbors_;  // pairs of characters within a token
  std::unordered_set<char32_t>
      first_characters_;  // first characters of tokens with a condition on the previous character
  std::unordered_set<char32_t> last_characters_, later_characters_;
};

}  // namespace hybrid_trainer
