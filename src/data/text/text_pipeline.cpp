#include "src/data/text/text_pipeline.h"

#include "hybrid_trainer/core/error.h"
#include "src/data/text/unicode.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

using CutKind = PreTokenizerStep::Kind;
using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;

Ranges literal_matches(std::string_view text, std::string_view literal) {
  Ranges matches;
  for (std::size_t at = text.find(literal); at != std::string_view::npos;
       at = text.find(literal, at + literal.size()))
    matches.emplace_back(at, at + literal.size());
  return matches;
}

Ranges character_matches(std::string_view text, bool (*matches)(char32_t)) {
  Ranges found;
  for_each_character(text, [&](CodePoint character, std::size_t begin, std::size_t end) {
    if (character.bytes > 0 && matches(character.value)) found.emplace_back(begin, end);
  });
  return found;
}

bool is_digit(char32_t value) { return (unicode_classes()[value] & kDigit) != 0; }
bool is_punctuation(char32_t value) { return (character_traits()[value] & kPunctuation) != 0; }

/// Returns the matches of \w+|[^\w\s]+.
Ranges word_runs(std::string_view text) {
  Ranges runs;
  int last = kWhiteSpace;
  for_each_character(text, [&](CodePoint found, std::size_t begin, std::size_t end) {
    const int classes = found.bytes == 0 ? 0 : unicode_classes()[found.value];
    const int kind = classes & (kWordCharacter | kWhiteSpace);
    if (kind == last && kind != kWhiteSpace) {
      runs.back().second = end;
    } else if (kind != kWhiteSpace) {
      runs.emplace_back(begin, end);
    }
    last = kind;
  });
  return runs;
}

/// Throws DataError if an untrusted tokenizer expands a text so much that memory could run out.
void check_growth(std::size_t bytes, std::size_t text_bytes) {
  constexpr std::size_t kMaxTimes = 64, kAlwaysAllowed = 1 << 20;
  if (bytes <= kMaxTimes * text_bytes + kAlwaysAllowed) return;
  throw DataError(concat("the tokenizer's steps expand a text of ", text_bytes, " bytes to ", bytes,
                         "; its tokenizer.json is damaged"));
}

}  // namespace

static std::string replaced(std::string_view text, const Ranges& matches,
                            std::string_view content) {
  std::string result;
  std::size_t begin = 0;
  check_growth(matches.size() * content.size(), text.size());
  for (const auto& [from, to] : matches) {
    result += text.substr(begin, from - begin);
    result += content;
    begin = to;
  }
  result += text.substr(begin);
  return result;
}

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
  return replaced(text, literal_matches(text, pattern), content);
}

std::string replace_matches(std::string_view text, const WordSplitter& words,
                            std::string_view content) {
  return replaced(text, words.matches(text), content);
}

std::vector<std::string_view> split_parts(std::string_view text, const Ranges& matches,
                                          SplitBehavior behavior, bool inverted) {
  struct Part {
    std::size_t begin, end;
    bool matches;
  };
  std::vector<Part> parts;
  std::size_t begin = 0;
  for (const auto& [from, to] : matches) {
    if (begin < from) parts.push_back({begin, from, inverted});
    parts.push_back({from, to, !inverted});
    begin = to;
  }
  if (begin < text.size()) parts.push_back({begin, text.size(), inverted});
  if (behavior == SplitBehavior::kRemoved) std::erase_if(parts, &Part::matches);
  const bool backwards = behavior == SplitBehavior::kMergedWithNext;
  if (backwards) std::ranges::reverse(parts);
  std::vector<Part> joined;
  bool previous = false;  // the previous part is a match
  for (const Part& part : parts) {
    const bool joins = behavior == SplitBehavior::kContiguous ? part.matches == previous
                       : behavior == SplitBehavior::kMergedWithPrevious || backwards
                           ? part.matches && !previous
                           : false;
    previous = part.matches;
    if (!joins || joined.empty()) {
      joined.push_back(part);
    } else {
      (backwards ? joined.back().begin : joined.back().end) = backwards ? part.begin : part.end;
    }
  }
  if (backwards) std::ranges::reverse(joined);
  std::vector<std::string_view> result;
  for (const Part& part : joined)
    if (part.begin < part.end) result.push_back(text.substr(part.begin, part.end - part.begin));
  return result;
}

TextPipeline::TextPipeline(std::vector<NormalizerStep> normalizers,
                           std::vector<PreTokenizerStep> steps)
    : normalizers_(std::move(normalizers)), steps_(std::move(steps)) {}

std::string TextPipeline::normalized(const NormalizerStep& step, std::string_view text,
                                     bool begins) {
  switch (step.kind) {
    case NormalizerStep::Kind::kNfc: return to_form(text, UnicodeForm::kC);
    case NormalizerStep::Kind::kPrepend:
      return text.empty() || !begins ? std::string(text) : concat(step.content, text);
    case NormalizerStep::Kind::kReplace: return replace_all(text, step.pattern, step.content);
    case NormalizerStep::Kind::kReplaceMatches:
      return replace_matches(text, step.words, step.content);
    case NormalizerStep::Kind::kConvert:
    case NormalizerStep::Kind::kCharacterMap: return step.convert(text);
  }
  return "";
}

std::string TextPipeline::normalized(std::string_view text, PiecePlace& place) const {
  std::string result(text);
  const bool begins = place.begins();
  for (const NormalizerStep& step : normalizers_) {
    if (!result.empty() && step.kind != NormalizerStep::Kind::kCharacterMap) {
      if (normalized(step, character_at(result, 0), begins).empty()) place.at_start = false;
    }
    result = normalized(step, result, begins);
    check_growth(result.size(), text.size());
  }
  return result;
}

/// Splits `text`; the parts may point into `changed`.
std::vector<std::string_view> TextPipeline::parts(const PreTokenizerStep& step,
                                                  std::string_view text, PiecePlace place,
                                                  std::string& changed) const {
  using Prepend = PreTokenizerStep::Prepend;
  if (step.kind == CutKind::kLiteral)
    return split_parts(text, literal_matches(text, step.literal), step.behavior, step.inverted);
  if (step.kind == CutKind::kMatches)
    return split_parts(text, step.words.matches(text), step.behavior, step.inverted);
  if (step.kind == CutKind::kDigits)
    return split_parts(text, character_matches(text, is_digit), step.behavior, false);
  if (step.kind == CutKind::kPunctuation)
    return split_parts(text, character_matches(text, is_punctuation), step.behavior, false);
  if (step.kind == CutKind::kWhiteSpace)
    return split_parts(text, character_matches(text, is_white_space), SplitBehavior::kRemoved,
                       false);
  if (step.kind == CutKind::kWordRuns)
    return split_parts(text, word_runs(text), SplitBehavior::kRemoved, true);
  if (step.kind == CutKind::kPrefixSpace) {
    if (text.starts_with(' ') || !place.begins()) return {text};
    changed = concat(' ', text);
    return {changed};
  }
  changed = replace_all(text, " ", step.literal);
  const bool prepends =
      step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && place.at_start);
  if (prepends && place.begins() && !changed.starts_with(step.literal))
    changed.insert(0, step.literal);
  if (!step.splits) return {changed};
  return split_parts(changed, literal_matches(changed, step.literal),
                     SplitBehavior::kMergedWithNext, false);
}

std::string_view TextPipeline::blank() const {
  const auto is_character = [](std::string_view text) {
    return !text.empty() && decode_utf8(text, 0).bytes == text.size();
  };
  for (const NormalizerStep& step : normalizers_) {
    if (step.kind == NormalizerStep::Kind::kReplace && is_character(step.content))
      return step.content;
  }
  for (const PreTokenizerStep& step : steps_) {
    if (step.kind == CutKind::kMetaspace) return step.literal;
  }
  return " ";
}

bool TextPipeline::composes() const {
  return std::ranges::any_of(normalizers_, [](const NormalizerStep& step) {
    return step.kind == NormalizerStep::Kind::kNfc;
  });
}

TextPipeline::Cut TextPipeline::may_cut(char32_t before, char32_t after) const {
  bool replaces_blanks = false;
  for (const NormalizerStep& step : normalizers_) {
    const bool converts = step.kind == NormalizerStep::Kind::kReplaceMatches ||
                          step.kind == NormalizerStep::Kind::kConvert ||
                          step.kind == NormalizerStep::Kind::kCharacterMap;
    if (converts) return Cut::kNo;
    if (step.kind != NormalizerStep::Kind::kReplace) continue;
    if (step.pattern != " " || blank() != step.content) return Cut::kNo;
    replaces_blanks = true;
  }
  for (const PreTokenizerStep& step : steps_) {
    if (step.kind == CutKind::kWords) {
      // White space neither composes with its neighbors nor is reordered.
      return !replaces_blanks && hybrid_trainer::may_cut(step.words.pattern(), before, after)
                 ? Cut::kYes
                 : Cut::kNo;
    }
    const bool matches_nothing =
        step.kind == CutKind::kLiteral && step.literal == " " && replaces_blanks;
    const bool cuts = step.kind != CutKind::kDigits && step.kind != CutKind::kMetaspace &&
                      step.kind != CutKind::kPrefixSpace;
    if (cuts && !matches_nothing) return Cut::kNo;
    replaces_blanks |= step.kind == CutKind::kMetaspace;
  }
  const bool may_compose = before >= kFirstComposing || after >= kFirstComposing;
  return composes() && may_compose ? Cut::kNo : Cut::kAtModelSplits;
}

}  // namespace hybrid_trainer
