#pragma once

#include <utility>
#include <vector>

#include "src/data/text/word_splitter.h"

namespace hybrid_trainer {

/// A normalization step of tokenizer.json's "normalizer".
struct NormalizerStep {
  enum class Kind { kNfc, kPrepend, kReplace, kReplaceMatches, kConvert, kCharacterMap } kind;
  std::string pattern = {};  // of kReplace
  std::string content = {};  // put before the text, or replaces the pattern or the matches
  WordSplitter words = {};   // of kReplaceMatches
  std::function<std::string(std::string_view)> convert = {};  // of kConvert, kCharacterMap
};

/// Treatment of the matches that separate words.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// A splitting step of tokenizer.json's "pre_tokenizer". ByteLevel becomes kPrefixSpace and kWords,
/// as requested; the model itself turns bytes into symbols.
struct PreTokenizerStep {
  enum class Kind {
    kWords,
    kMatches,
    kLiteral,
    kDigits,
    kWhiteSpace,   // removed
    kPunctuation,  // each character
    kWordRuns,     // of word characters, and of others, without white space
    kMetaspace,
    kPrefixSpace
  } kind;
  WordSplitter words = {};                            // of kWords, kMatches
  std::string literal = {};                           // of kLiteral, or kMetaspace's ▁
  SplitBehavior behavior = SplitBehavior::kIsolated;  // of kMatches … kPunctuation
  bool inverted = false;                              // of kMatches, kLiteral
  enum class Prepend { kAlways, kFirst, kNever };
  Prepend prepend = Prepend::kAlways;  // of kMetaspace
  bool splits = true;                  // of kMetaspace
};

/// Position of a piece of text in its document.
struct PiecePlace {
  bool at_start = true;    // the piece begins the text
  bool continues = false;  // the text continues a document
  /// Returns whether a document begins here, or the text after an added token.
  bool begins() const { return !(at_start && continues); }
};

/// Splits a text at `matches`, pairs of begin and end, in order and without overlap. Joins or
/// removes parts according to `behavior`. No part of the result is empty.
std::vector<std::string_view> split_parts(
    std::string_view text, const std::vector<std::pair<std::size_t, std::size_t>>& matches,
    SplitBehavior behavior, bool inverted);

/// Returns the text with each `pattern`, which must not be empty, replaced by `content`.
std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content);

/// Returns the text with the matches of an expression replaced by `content`.
std::string replace_matches(std::string_view text, const WordSplitter& words,
                            std::string_view content);

/// Converts a text to the words that the model encodes.
class TextPipeline {
 public:
  /// Throws DataError if there are more steps than in any real tokenizer.
  TextPipeline(std::vector<NormalizerStep> normalizers, std::vector<PreTokenizerStep> steps);

  bool normalizes() const { return !normalizers_.empty(); }
  bool composes() const;  // with NFC
  /// Returns the normalized text. If its first character was removed, except by a character map,
  /// `place` is no longer at the start, as in Hugging Face's tokenizers. Throws DataError if the result is far longer than the text.
  std::string normalized(std::string_view text, PiecePlace& place) const;

  /// Calls f(word) for each word of a normalized text.
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
  /// Returns the character that replaces a blank. Returns a blank if there is no such character.
  std::string_view blank() const;

 private:
  static std::string normalized(const NormalizerStep& step, std::string_view text, bool begins);
  std::vector<std::string_view> parts(const PreTokenizerStep& step, std::string_view text,
                                      PiecePlace place, std::string& changed) const;
  std::vector<NormalizerStep> normalizers_;
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace hybrid_trainer
