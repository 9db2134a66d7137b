#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Patterns of words within which a byte-pair encoding works:
///   kGpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///   kLlama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
///            | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
///   kQwen2   Llama 3's with \p{N} for \p{N}{1,3}
///   kQwen35  Qwen2's with [\p{L}\p{M}]+ for \p{L}+ and [^\s\p{L}\p{M}\p{N}]+ for [^\s\p{L}\p{N}]+
///   kTekken  Mistral NeMo's and later ones': Qwen2's without contractions, with [\r\n/]* for
///            [\r\n]*, and for a word [^\r\n\p{L}\p{N}]?[UPPER]*[LOWER]+|[^\r\n\p{L}\p{N}]?[UPPER]+[LOWER]*
///            where UPPER is \p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}, LOWER is \p{Ll}\p{Lm}\p{Lo}\p{M}
///   kGpt4o   Tekken's with (?i:'s|'t|'re|'ve|'m|'ll|'d)? behind a word and \p{N}{1,3} for \p{N}
enum class WordPattern { kGpt2, kLlama3, kQwen2, kQwen35, kTekken, kGpt4o };

/// The pattern that this regular expression spells, as one of the above does.
std::optional<WordPattern> word_pattern_of(std::string_view expression);

/// The regular expression that spells a pattern.
std::string word_expression(WordPattern pattern);

/// The end of the word that begins at `begin`, which is where a word ends or the text begins. A run
/// of bytes that are not UTF-8 is a word, and the text before it is matched as if it ended there.
std::size_t word_end(WordPattern pattern, std::string_view text, std::size_t begin);

/// Calls f(word) for each word of a text.
template <class F>
void for_each_word(WordPattern pattern, std::string_view text, const F& f) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = word_end(pattern, text, begin);
    f(text.substr(begin, end - begin));
    begin = end;
  }
}

/// Whether a text between whose neighbouring characters these two are may be cut there, so that its
/// parts have the words of the whole.
bool may_cut(WordPattern pattern, char32_t before, char32_t after);

/// The last place from `first` on, but 0, where two characters meet for which
/// `may_cut(before, after)` holds; 0 if there is none.
std::size_t last_place_between(
    std::string_view text, std::size_t first,
    const std::function<bool(std::string_view before, std::string_view after)>& may_cut);

/// Where the last character begins: of each character for itself.
std::size_t last_character(std::string_view text, std::size_t first);

/// Where GPT-2's words are the same on both sides.
std::size_t last_word_cut(std::string_view text, std::size_t first);

}  // namespace hybrid_trainer
