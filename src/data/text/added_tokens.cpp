#include "src/data/text/added_tokens.h"

#include <numeric>

#include "src/core/narrow.h"
#include "src/data/text/unicode.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

std::uint64_t neighbors_key(char32_t before, char32_t after) {
  return std::uint64_t{before} << 32 | after;
}

CodePoint character_before(std::string_view text, std::size_t end) {
  if (end == 0) return {};
  return decode_utf8(final_character(text.substr(0, end)), 0);
}

bool has_class(CodePoint character, UnicodeClass wanted) {
  return character.bytes > 0 && (unicode_classes()[character.value] & wanted) != 0;
}

}  // namespace

void AddedTokens::add(AddedToken token) {
  add_neighbors(token);
  tokens_.push_back(std::move(token));
  add_nodes(narrow<std::uint32_t>(tokens_.size() - 1));
}

void AddedTokens::add_neighbors(const AddedToken& token) {
  only_special_ &= token.special;
  strips_ |= token.lstrip || token.rstrip;
  char32_t first = 0, last = 0;
  for_each_character(token.content, [&](CodePoint found, std::size_t begin, std::size_t) {
    if (begin == 0) first = found.value;
    if (begin > 0) {
      neighbors_.insert(neighbors_key(last, found.value));
      later_characters_.insert(found.value);
    }
    last = found.value;
  });
  if (token.single_word || token.lstrip) first_characters_.insert(first);
  last_characters_.insert(last);
}

void AddedTokens::add_nodes(std::uint32_t token) {
  const std::string& content = tokens_[token].content;
  ends_[static_cast<unsigned char>(content.back())] = true;
  std::uint32_t node = 0;
  for (std::size_t i = content.size(); i-- > 0;) {
    const auto byte = static_cast<unsigned char>(content[i]);
    const auto [edge, is_new] = edges_.emplace(std::uint64_t{node} << 8 | byte, nodes_.size());
    if (is_new) nodes_.push_back({.parent = node, .byte = byte});
    node = edge->second;
  }
  nodes_[node].longest = token;
}

/// Processes shorter nodes first, because the suffix links of longer nodes depend on them.
void AddedTokens::finish() {
  std::vector<std::uint32_t> depth(nodes_.size()), order(nodes_.size());
  for (std::uint32_t node = 1; node < nodes_.size(); ++node)
    depth[node] = depth[nodes_[node].parent] + 1;
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t node) { return depth[node]; });
  for (const std::uint32_t place : order) {
    Node& node = nodes_[place];
    if (depth[place] > 1)
      node.shorter = next(nodes_[node.parent].shorter, static_cast<char>(node.byte));
    if (node.longest == kNone) node.longest = nodes_[node.shorter].longest;
  }
}

std::uint32_t AddedTokens::next(std::uint32_t node, char byte) const {
  for (;; node = nodes_[node].shorter) {
    const auto edge = edges_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(byte));
    if (edge != edges_.end()) return edge->second;
    if (node == 0) return 0;
  }
}

/// Returns the longest token that begins at each position, from the last position to the first.
std::vector<AddedTokens::Match> AddedTokens::last_to_first(std::string_view text) const {
  std::vector<Match> found;
  std::uint32_t node = 0;
  for (std::size_t place = text.size(); place-- > 0;) {
    if (node == 0 && !ends_[static_cast<unsigned char>(text[place])]) continue;
    node = next(node, text[place]);
    if (nodes_[node].longest != kNone) found.push_back({place, nodes_[node].longest});
  }
  return found;
}

std::vector<AddedTokens::Piece> AddedTokens::split(std::string_view text,
                                                   bool skips_special) const {
  if (matches_nothing(skips_special))
    return text.empty() ? std::vector<Piece>{} : std::vector<Piece>{{text, {}}};
  std::vector<Piece> pieces;
  std::size_t begin = 0, searched = 0;  // after the last token, with and without its white space
  std::vector<Match> found = last_to_first(text);
  for (; !found.empty(); found.pop_back()) {
    const auto [place, which] = found.back();
    if (place < searched) continue;
    const AddedToken& token = tokens_[which];
    std::size_t start = place, stop = place + token.content.size();
    searched = stop;
    if (token.special && skips_special) continue;
    if (token.single_word && (has_class(character_before(text, start), kWordCharacter) ||
                              has_class(decode_utf8(text, stop), kWordCharacter)))
      continue;
    if (token.lstrip) {
      while (start > begin && has_class(character_before(text, start), kWhiteSpace))
        start -= character_before(text, start).bytes;
    }
    if (token.rstrip) {
      stop = std::max(stop, begin);  // only white space up to there
      while (has_class(decode_utf8(text, stop), kWhiteSpace)) stop += decode_utf8(text, stop).bytes;
    }
    if (begin < start) pieces.push_back({text.substr(begin, start - begin), {}});
    pieces.push_back({{}, token.id});
    begin = stop;
  }
  if (begin < text.size()) pieces.push_back({text.substr(begin), {}});
  return pieces;
}

bool AddedTokens::may_cut(char32_t before, char32_t after) const {
  const bool in_white_space = is_white_space(before) && is_white_space(after);
  return !(strips_ && in_white_space) && !neighbors_.contains(neighbors_key(before, after)) &&
         !first_characters_.contains(after) && !last_characters_.contains(before);
}

}  // namespace hybrid_trainer
