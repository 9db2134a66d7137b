#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/tokenizer.h"

namespace hybrid_trainer {

namespace {

using Ids = std::vector<std::int32_t>;

bool is_text(const TemplatePiece& piece) { return piece.id < 0; }

/// Shortens the longer text first, then both texts to half of `left` each. If `left` is odd, the
/// second text gets one id more.
void halve(std::int64_t& first, std::int64_t& second, std::int64_t left) {
  std::int64_t& shorter = first > second ? second : first;
  std::int64_t& longer = first > second ? first : second;
  longer = shorter > left ? shorter : std::max(shorter, left - shorter);
  if (shorter + longer <= left) return;
  shorter = left / 2;
  longer = shorter + left % 2;
}

/// Returns the lengths of two texts that together have `left` ids. Throws DataError if the text to
/// truncate would be empty.
std::array<std::int64_t, 2> truncated(std::array<std::int64_t, 2> lengths, std::int64_t left,
                                      Truncation truncation, bool is_pair) {
  const std::int64_t excess = lengths[0] + lengths[1] - left;
  if (excess <= 0) return lengths;
  if (left == 0) return {0, 0};
  if (!is_pair) return {left, 0};
  if (truncation == Truncation::kLongestFirst) {
    halve(lengths[0], lengths[1], left);
    return lengths;
  }
  const bool is_first = truncation == Truncation::kOnlyFirst;
  std::int64_t& length = lengths[is_first ? 0 : 1];
  if (length <= excess)
    throw DataError(concat("the ", is_first ? "first" : "second", " text has ", length,
                           " tokens, but the limit removes ", excess,
                           "; want a higher limit or longest-first truncation"));
  length -= excess;
  return lengths;
}

}  // namespace

std::vector<TemplatePiece> Tokenizer::input_template(bool is_pair) const {
  std::vector<TemplatePiece> pieces{{TemplatePiece::kFirstText, 0}};
  if (is_pair) pieces.push_back({TemplatePiece::kSecondText, 1});
  return pieces;
}

Ids Tokenizer::template_start() const {
  Ids ids;
  for (const TemplatePiece& piece : input_template(false)) {
    if (is_text(piece)) break;
    ids.push_back(piece.id);
  }
  return ids;
}

Ids Tokenizer::template_end() const {
  Ids ids;
  for (const TemplatePiece& piece : input_template(false))
    is_text(piece) ? ids.clear() : ids.push_back(piece.id);
  return ids;
}

ModelInput Tokenizer::encode_texts(std::string_view first, std::optional<std::string_view> second,
                                   const TokenLimit& limit, ControlText control) const {
  const std::vector<TemplatePiece> pieces = input_template(second.has_value());
  if (pieces.empty())
    throw DataError("the tokenizer's post_processor has no template for a pair of texts; want one");
  const std::array<Ids, 2> texts{encode(first, control), second ? encode(*second, control) : Ids{}};
  const auto added =
      std::ssize(pieces) - static_cast<std::int64_t>(std::ranges::count_if(pieces, is_text));
  if (limit.ids < added)
    throw DataError(concat("the tokenizer adds ", added, " tokens, but the limit is ", limit.ids));
  const auto lengths = truncated({std::ssize(texts[0]), std::ssize(texts[1])}, limit.ids - added,
                                 limit.truncation, second.has_value());
  ModelInput input;
  for (const TemplatePiece& piece : pieces) {
    if (is_text(piece)) {
      const std::size_t which = piece.id == TemplatePiece::kFirstText ? 0 : 1;
      const auto all = texts[which].begin();
      const std::int64_t kept = lengths[which];
      const std::int64_t begin =
          limit.end == TruncatedEnd::kLeft ? std::ssize(texts[which]) - kept : 0;
      input.ids.insert(input.ids.end(), all + begin, all + begin + kept);
    } else {
      input.ids.push_back(piece.id);
    }
    input.types.resize(input.ids.size(), piece.type);
  }
  return input;
}

}  // namespace hybrid_trainer
