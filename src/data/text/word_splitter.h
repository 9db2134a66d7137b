#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hybrid_trainer {

/// Word patterns of byte-pair encodings, as other files name them:
///   kGpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///   kLlama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
///            | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
///   kQwen2   Llama 3's with \p{N} for \p{N}{1,3}
///   kQwen35  Qwen2's with [\p{L}\p{M}]+ for \p{L}+ and [^\s\p{L}\p{M}\p{N}]+ for [^\s\p{L}\p{N}]+
///   kTekken  Mistral NeMo's and later ones': Qwen2's without contractions, with [\r\n/]* for
///            [\r\n]*, and for a word [^\r\n\p{L}\p{N}]?[UPPER]*[LOWER]+|[^\r\n\p{L}\p{N}]?[UPPER]+[LOWER]*
///            with UPPER = \p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}, LOWER = \p{Ll}\p{Lm}\p{Lo}\p{M}
///   kGpt4o   Tekken's with (?i:'s|'t|'re|'ve|'m|'ll|'d)? after a word and \p{N}{1,3} for \p{N}
enum class WordPattern { kGpt2, kLlama3, kQwen2, kQwen35, kTekken, kGpt4o, kOther };

std::string word_expression(WordPattern pattern);

/// Returns the end of the GPT-2 word that begins at `begin`. A run of bytes that are not UTF-8 is a
/// word, and the text before such a run is matched as if it ended there.
std::size_t gpt2_word_end(std::string_view text, std::size_t begin);

class CompiledExpression;

/// Finds matches one after the other, like Oniguruma in Hugging Face's tokenizers. Bytes that are
/// not UTF-8 match nothing; the text before them is matched as if it ended there.
class WordMatches {
 public:
  WordMatches(const CompiledExpression& expression, std::string_view text);
  ~WordMatches();
  /// Returns begin and end of the next match. Throws DataError if the search takes too long.
  std::optional<std::pair<std::size_t, std::size_t>> next();

 private:
  struct Search;
  bool begin_run();

  const CompiledExpression& expression_;
  std::string_view text_;
  std::unique_ptr<Search> search_;
  std::string_view run_;  // valid UTF-8 bytes, or their replacements
  /// Begin of the run in the text; position of the search in the run.
  std::size_t begin_ = 0, at_ = 1;
  std::optional<std::size_t> last_end_;
};

/// Splits texts into words by a regular expression.
class WordSplitter {
 public:
  /// Uses GPT-2's words.
  WordSplitter() = default;
  /// Compiles an expression in Oniguruma's dialect. Throws DataError if PCRE2 does not accept it.
  explicit WordSplitter(const std::string& expression);

  WordPattern pattern() const { return pattern_; }

  /// Calls f(word) for each match and for the text between two matches.
  template <class F>
  void for_each_word(std::string_view text, const F& f) const {
    std::size_t begin = 0;
    const auto pass = [&](std::size_t end) {
      if (begin < end) f(text.substr(begin, end - begin));
      begin = end;
    };
    if (pattern_ == WordPattern::kGpt2) {
      while (begin < text.size()) pass(gpt2_word_end(text, begin));
      return;
    }
    WordMatches matches(*expression_, text);
    while (const auto match = matches.next()) pass(match->first), pass(match->second);
    pass(text.size());
  }

  /// Returns begin and end of each match. Requires that the constructor got an expression.
  std::vector<std::pair<std::size_t, std::size_t>> matches(std::string_view text) const;

 private:
  WordPattern pattern_ = WordPattern::kGpt2;
  std::shared_ptr<const CompiledExpression> expression_;
};

/// Returns whether a text cut between these characters has the same words as the whole text.
bool may_cut(WordPattern pattern, char32_t before, char32_t after);

/// Returns the last position, at least `first`, at which `may_cut(before, after)` holds, or 0.
std::size_t last_match_between(
    std::string_view text, std::size_t first,
    const std::function<bool(std::string_view before, std::string_view after)>& may_cut);

/// Returns the start of the last character, at which tokenizers of single characters cut.
std::size_t last_character(std::string_view text, std::size_t first);

/// Returns the last position at which a cut keeps GPT-2's words on both sides.
std::size_t last_word_cut(std::string_view text, std::size_t first);

}  // namespace hybrid_trainer
