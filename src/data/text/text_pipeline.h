#pragma once

#include "src/data/text/word_splitter.h"

namespace hybrid_trainer {

/// A normalization step of tokenizer.json's "normalizer".
struct NormalizerStep {
  enum class Kind { kNfc, kPrepend, kReplace, kReplaceMatches, kConvert, kCharacterMap } kind;
  std::string pattern = {};  // used by kReplace
  std::string content = {};  // text to prepend, or replacement of the pattern or the matches
  WordSplitter words = {};   // used by kReplaceMatches
  std::function<std::string(std::string_view)> convert = {};  // used by kConvert and kCharacterMap
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// A step of tokenizer.json's "pre_tokenizer". ByteLevel becomes kPrefixSpace and kWords.
struct PreTokenizerStep {
  enum class Kind {
    kWords,
    kMatches,
    kLiteral,
    kDigits,
    kWhiteSpace,   // splits at white space, which is removed
    kPunctuation,  // splits off each punctuation character
    kWordRuns,     // runs of word characters, and runs of other characters except white space
    kMetaspace,
    kPrefixSpace
  } kind;
  WordSplitter words = {};                            // used by kWords and kMatches
  std::string literal = {};                           // text of kLiteral, or the ▁ of kMetaspace
  SplitBehavior behavior = SplitBehavior::kIsolated;  // used by kMatches to kPunctuation
  bool inverted = false;                              // used by kMatches and kLiteral
  enum class Prepend { kAlways, kFirst, kNever };
  Prepend prepend = Prepend::kAlways;  // used by kMetaspace
  bool splits = true;                  // used by kMetaspace
};

struct PiecePlace {
  bool at_start = true;    // the piece begins the text
  bool continues = false;  // the text continues a document
  /// Returns whether a document, or the text after an added token, begins here.
  bool begins() const { return !(at_start && continues); }
};

/// Splits a text at `matches`, which are pairs of begin and end in ascending order without overlap.
/// Joins or removes the matches according to `behavior`. No part of the result is empty.
std::vector<std::string_view> split_parts(
    std::string_view text, const std::vector<std::pair<std::size_t, std::size_t>>& matches,
    SplitBehavior behavior, bool inverted);

/// Returns the text with each `pattern`, which must not be empty, replaced by `content`.
std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content);

std::string replace_matches(std::string_view text, const WordSplitter& words,
                            std::string_view content);

/// Converts a text to the words that the model encodes.
class TextPipeline {
 public:
  /// Throws DataError if there are more steps than in any real tokenizer.
  TextPipeline(std::vector<NormalizerStep> normalizers, std::vector<PreTokenizerStep> steps);

  bool normalizes() const { return !normalizers_.empty(); }
  bool composes() const;  // whether the text is converted to NFC
  /// Returns the normalized text. Clears place.at_start if a step other than a character map
  /// removes the first character. Throws DataError if the result is far longer than the text.
  std::string normalized(std::string_view text, PiecePlace& place) const;

  template <class F>
  void for_each_word(std::string_view text, PiecePlace place, const F& f,
                     std::size_t step = 0) const {
    if (step == steps_.size()) return f(text);
    const PreTokenizerStep& this_step = steps_[step];
    std::string changed;
    const auto next = [&](std::string_view part) {
      const char* start = changed.empty() ? text.data() : changed.data();
      const bool at_start = place.at_start && part.data() == start;
      for_each_word(part, {at_start, place.continues}, f, step + 1);
    };
    if (this_step.kind == PreTokenizerStep::Kind::kWords) {
      this_step.words.for_each_word(text, next);
    } else {
      for (const std::string_view part : parts(this_step, text, place, changed)) next(part);
    }
  }

  /// Whether the pipeline permits cutting a text between two neighboring characters.
  enum class Cut { kYes, kNo, kAtModelSplits };
  Cut may_cut(char32_t before, char32_t after) const;
  /// Returns the character that replaces a blank, or a blank if blanks are not replaced.
  std::string_view blank() const;

 private:
  static std::string normalized(const NormalizerStep& step, std::string_view text, bool begins);
  std::vector<std::string_view> parts(const PreTokenizerStep& step, std::string_view text,
                                      PiecePlace place, std::string& changed) const;
  std::vector<NormalizerStep> normalizers_;
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace hybrid_trainer
