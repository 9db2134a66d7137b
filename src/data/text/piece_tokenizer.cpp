#include "src/data/text/piece_tokenizer.h"

#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"
#include "src/data/text/unicode.h"
#include "src/files/text.h"

namespace hybrid_trainer {

TokenTrie::TokenTrie(const std::vector<std::string>& tokens) {
  std::vector<std::int32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0);
  const auto token = [&](std::size_t i) -> const std::string& {
    return tokens[static_cast<std::size_t>(order[i])];
  };
  std::ranges::stable_sort(order, {}, [&](std::int32_t id) -> const std::string& {
    return tokens[static_cast<std::size_t>(id)];
  });
  struct Range {
    std::size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, order.size(), 0}};
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    for (; begin < end && token(begin).size() == depth; ++begin)
      if (depth > 0) nodes_[node].id = order[begin];
    nodes_[node].first_child = narrow<std::uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = token(begin)[depth];
      const std::size_t first = begin;
      while (begin < end && token(begin)[depth] == byte) ++begin;
      nodes_.push_back({.byte = static_cast<unsigned char>(byte)});
      ranges.push_back({first, begin, depth + 1});
      ++nodes_[node].children;
    }
  }
}

const TokenTrie::Node* TokenTrie::next(const Node& node, char byte) const {
  const auto begin = nodes_.begin() + node.first_child, end = begin + node.children;
  const auto wanted = static_cast<unsigned char>(byte);
  const auto found = std::ranges::lower_bound(begin, end, wanted, {}, &Node::byte);
  return found != end && found->byte == wanted ? &*found : nullptr;
}

const TokenTrie::Node* TokenTrie::find(std::string_view text) const {
  const Node* node = &root();
  for (std::size_t i = 0; i < text.size() && node != nullptr; ++i) node = next(*node, text[i]);
  return node;
}

std::int32_t TokenTrie::id_of(std::string_view token) const {
  const Node* node = find(token);
  return node == nullptr ? kNone : node->id;
}

void WordPieceModel::append(std::string_view word, std::vector<std::int32_t>& ids) const {
  const std::size_t before = ids.size();
  const auto append_unknown = [&] {
    ids.resize(before);
    ids.push_back(unknown);
  };
  const auto characters = static_cast<std::size_t>(
      std::ranges::count_if(word, [](char byte) { return !is_continuation(byte); }));
  if (characters > max_characters) return append_unknown();
  const TokenTrie::Node* inside = tokens.find(prefix);
  for (std::size_t begin = 0; begin < word.size();) {
    const TokenTrie::Node* node = begin == 0 ? &tokens.root() : inside;
    std::size_t end = begin;
    std::int32_t longest = TokenTrie::kNone;
    for (std::size_t i = begin; i < word.size() && node != nullptr; ++i) {
      node = tokens.next(*node, word[i]);
      if (node == nullptr || node->id == TokenTrie::kNone) continue;
      longest = node->id;
      end = i + 1;
    }
    if (longest == TokenTrie::kNone) return append_unknown();
    ids.push_back(longest);
    begin = end;
  }
}

void UnigramModel::append_run(std::string_view run, std::vector<std::int32_t>& ids) const {
  if (const std::int32_t id = tokens.id_of(run); id != TokenTrie::kNone) return ids.push_back(id);
  const auto byte_id = [&](char byte) { return byte_ids[static_cast<unsigned char>(byte)]; };
  if (std::ranges::all_of(run, [&](char byte) { return byte_id(byte) != TokenTrie::kNone; })) {
    for (const char byte : run) ids.push_back(byte_id(byte));
    return;
  }
  if (unknown == TokenTrie::kNone)
    throw DataError(concat("the text \"", run.substr(0, whole_characters(run, 40)),
                           "\" has no token, and the tokenizer.json has no model.unk_id"));
  ids.push_back(unknown);
}

void UnigramModel::append(std::string_view word, std::vector<std::int32_t>& ids) const {
  struct End {
    double score = 0;
    std::size_t begin = std::string_view::npos;  // start of the best last token; npos: none yet
    std::int32_t id = 0;
  };
  std::vector<End> ends(word.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, std::int32_t id, double score) {
    const double sum = score + ends[begin].score;
    if (ends[end].begin == std::string_view::npos || sum > ends[end].score)
      ends[end] = {sum, begin, id};
  };
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t after = begin + character_at(word, begin).size();
    bool has_token = false;  // a token equals this character
    const TokenTrie::Node* node = &tokens.root();
    for (std::size_t i = begin; i < word.size(); ++i) {
      node = tokens.next(*node, word[i]);
      if (node == nullptr) break;
      if (node->id == TokenTrie::kNone) continue;
      offer(begin, i + 1, node->id, scores[static_cast<std::size_t>(node->id)]);
      has_token |= i + 1 == after;
    }
    if (!has_token) offer(begin, after, unknown, unknown_score);
    begin = after;
  }
  std::vector<std::string_view> parts;  // pieces from last to first; a run of unknown ones is one
  bool follows_unknown = false;
  for (std::size_t end = word.size(); end > 0;) {
    const auto& [score, begin, id] = ends[end];
    const bool is_unknown = id == unknown;
    if (is_unknown && follows_unknown) {
      parts.back() = word.substr(begin, end - begin + parts.back().size());
    } else {
      parts.push_back(word.substr(begin, end - begin));
    }
    follows_unknown = is_unknown;
    end = begin;
  }
  for (; !parts.empty(); parts.pop_back()) append_run(parts.back(), ids);
}

template <class Model>
void PieceTokenizer<Model>::append_tokens(std::string_view text, std::vector<std::int32_t>& ids,
                                          TextStart start, ControlText control) const {
  std::string well_formed;
  if (valid_utf8_bytes(text, 0) != text.size()) text = well_formed = well_formed_utf8(text);
  append_words(text, ids, start, control, [&](std::string_view word) { model_.append(word, ids); });
}

template class PieceTokenizer<WordPieceModel>;
template class PieceTokenizer<UnigramModel>;

}  // namespace hybrid_trainer
