#include "added_tokens.h"

#include <algorithm>

#include "hybrid_trainer/files/utf8.h"
#include "unicode_classes.h"

namespace hybrid_trainer {

namespace {

std::uint64_t neighbours_key(char32_t before, char32_t after) {
  return std::uint64_t{before} << 32 | after;
}

/// The character that ends at `end`; bytes 0: there is none.
CodePoint character_before(std::string_view text, std::size_t end) {
  if (end == 0) return {};
  std::size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && is_continuation(text[begin])) --begin;
  const CodePoint found = decode_utf8(text, begin);
  return found.bytes == end - begin ? found : CodePoint{};
}

bool has_class(CodePoint character, UnicodeClass wanted) {
  return character.bytes > 0 && (unicode_classes()[character.value] & wanted) != 0;
}

}  // namespace

void AddedTokens::add(AddedToken token) {
  std::uint32_t node = 0;
  for (const char byte : token.content) {
    const std::uint64_t key = std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
    node = nodes_.emplace(key, static_cast<std::uint32_t>(nodes_.size() + 1)).first->second;
  }
  ends_[node] = tokens_.size();
  begins_[static_cast<unsigned char>(token.content.front())] = true;
  only_special_ &= token.special;
  strips_ |= token.lstrip || token.rstrip;
  char32_t first = 0, last = 0;
  for (std::size_t i = 0; i < token.content.size();) {
    const CodePoint found = decode_utf8(token.content, i);
    if (i == 0) first = found.value;
    if (i > 0) {
      neighbours_.insert(neighbours_key(last, found.value));
      later_.insert(found.value);
    }
    last = found.value;
    i += found.bytes;
  }
  if (token.single_word || token.lstrip) firsts_.insert(first);
  lasts_.insert(last);
  tokens_.push_back(std::move(token));
}

AddedTokens::Match AddedTokens::longest_at(std::string_view text, std::size_t place) const {
  Match longest;
  std::uint32_t node = 0;
  for (std::size_t i = place; i < text.size(); ++i) {
    const auto found = nodes_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(text[i]));
    if (found == nodes_.end()) break;
    node = found->second;
    if (const auto end = ends_.find(node); end != ends_.end())
      longest = {i + 1 - place, end->second};
  }
  return longest;
}

std::vector<AddedTokens::Piece> AddedTokens::split(std::string_view text,
                                                   bool skips_special) const {
  std::vector<Piece> pieces;
  std::size_t begin = 0;  // of the text after the last token
  for (std::size_t i = 0; i < text.size() && !finds_nothing(skips_special);) {
    const Match match =
        begins_[static_cast<unsigned char>(text[i])] ? longest_at(text, i) : Match{};
    if (match.bytes == 0) {
      ++i;
      continue;
    }
    std::size_t start = i, stop = i + match.bytes;
    i = stop;
    const AddedToken& token = tokens_[match.token];
    if (token.special && skips_special) continue;
    if (token.single_word && (has_class(character_before(text, start), kWordCharacter) ||
                              has_class(decode_utf8(text, stop), kWordCharacter)))
      continue;
    if (token.lstrip) {
      while (has_class(character_before(text, start), kWhiteSpace))
        start -= character_before(text, start).bytes;
      start = std::max(start, begin);
    }
    if (token.rstrip) {
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
  return !(strips_ && in_white_space) && !neighbours_.contains(neighbours_key(before, after)) &&
         !firsts_.contains(after) && !lasts_.contains(before);
}

}  // namespace hybrid_trainer
