#include "src/data/audio/word_errors.h"

#include <utf8proc.h>

#include "src/core/narrow.h"
#include "src/data/text/unicode.h"

namespace hybrid_trainer {

namespace {

using Characters = std::u32string;

/// Decodes UTF-8. Bytes that are not UTF-8 become U+FFFD, which is a symbol.
Characters characters_of(std::string_view text) {
  Characters characters;
  for_each_character(text, [&](CodePoint point, std::size_t, std::size_t) {
    characters += point.bytes == 0 ? U'\uFFFD' : point.value;
  });
  return characters;
}

std::string utf8_of(const Characters& characters) {
  std::string text;
  for (const char32_t one : characters) append_utf8(one, text);
  return text;
}

void make_lower(Characters& characters) {
  for (char32_t& one : characters)
    one = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(one)));
}

/// Removes each part in brackets if at least `least` characters are between them.
Characters without_brackets(const Characters& text, std::u32string_view opening,
                            std::u32string_view closing, std::size_t least) {
  Characters left;
  std::size_t end = 0;  // position of the next `closing` character
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool opens = opening.find(text[at]) != opening.npos;
    if (opens && end <= at) end = text.find_first_of(closing, at + 1);
    if (!opens || end == text.npos || end - at - 1 < least)
      left += text[at];
    else
      at = end;
  }
  return left;
}

/// Returns whether the character separates words: punctuation, a symbol or a blank. A mark after a letter does not, because it may be
/// a vowel.
bool separates_words(char32_t character, bool is_in_word) {
  if (character <= U' ' || character == 0x85) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(character));
  if (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME) return !is_in_word;
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_ZP;
}

using Words = std::vector<std::string_view>;

Words words_of(std::string_view normal) {
  Words words;
  for (std::size_t at = 0; at < normal.size();) {
    const std::size_t end = std::min(normal.find(' ', at), normal.size());
    words.push_back(normal.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

/// Edit distances between all prefixes of two texts, stored as differences along the first text.
class Distances {
 public:
  Distances(const Words& reference, const Words& hypothesis)
      : reference_(reference),
        hypothesis_(hypothesis),
        steps_((reference.size() + 1) * (hypothesis.size() + 1)) {
    std::vector<std::int64_t> before(reference.size() + 1), now(reference.size() + 1);
    for (std::size_t i = 0; i <= reference.size(); ++i) before[i] = static_cast<std::int64_t>(i);
    keep(0, before);
    for (std::size_t j = 1; j <= hypothesis.size(); ++j) {
      now[0] = static_cast<std::int64_t>(j);
      for (std::size_t i = 1; i <= reference.size(); ++i)
        now[i] = std::min({before[i - 1] + (reference[i - 1] == hypothesis[j - 1] ? 0 : 1),
                           before[i] + 1, now[i - 1] + 1});
      keep(j, now);
      before.swap(now);
    }
  }

  /// Traces back a shortest path. The choice among shortest paths is the same as in jiwer.
  WordErrors errors() const {
    WordErrors errors{.words = std::ssize(reference_)};
    std::size_t i = reference_.size(), j = hypothesis_.size();
    while (i > 0 && j > 0) {
      if (step(i, j) == 1) {
        ++errors.deletions;
        --i;
      } else if (--j; j > 0 && step(i, j) == -1) {
        ++errors.insertions;
      } else {
        --i;
        if (reference_[i] != hypothesis_[j]) ++errors.substitutions;
      }
    }
    errors.deletions += static_cast<std::int64_t>(i);
    errors.insertions += static_cast<std::int64_t>(j);
    return errors;
  }

 private:
  void keep(std::size_t j, const std::vector<std::int64_t>& distances) {
    for (std::size_t i = 1; i < distances.size(); ++i)
      steps_[j * (reference_.size() + 1) + i] =
          narrow<std::int8_t>(distances[i] - distances[i - 1]);
  }
  std::int8_t step(std::size_t i, std::size_t j) const {
    return steps_[j * (reference_.size() + 1) + i];
  }

  const Words& reference_;
  const Words& hypothesis_;
  std::vector<std::int8_t> steps_;
};

}  // namespace

double WordErrors::rate() const {
  if (words == 0) return errors() == 0 ? 0 : 1;
  return static_cast<double>(errors()) / static_cast<double>(words);
}

std::string WordErrors::text() const {
  const auto counted = [](std::int64_t count, const char* kind) {
    return concat(count, " ", kind, count == 1 ? "" : "s");
  };
  return concat(counted(substitutions, "substitution"), ", ", counted(deletions, "deletion"), ", ",
                counted(insertions, "insertion"));
}

WordErrors& WordErrors::operator+=(const WordErrors& other) {
  words += other.words;
  substitutions += other.substitutions;
  deletions += other.deletions;
  insertions += other.insertions;
  return *this;
}

std::string normalized_words(std::string_view text) {
  Characters characters = characters_of(text);
  make_lower(characters);
  characters = without_brackets(characters, U"<[", U">]", 0);
  characters = without_brackets(characters, U"(", U")", 1);
  characters = characters_of(in_unicode_form(utf8_of(characters), UnicodeForm::kKC));
  make_lower(characters);
  Characters words;
  for (const char32_t one : characters) {
    const bool is_in_word = !words.empty() && words.back() != U' ';
    if (!separates_words(one, is_in_word))
      words += one;
    else if (is_in_word)
      words += U' ';
  }
  if (words.ends_with(U' ')) words.pop_back();
  return utf8_of(words);
}

WordErrors word_errors(std::string_view reference, std::string_view hypothesis) {
  const std::string normalized_reference = normalized_words(reference),
                    normalized_hypothesis = normalized_words(hypothesis);
  Words of_reference = words_of(normalized_reference),
        of_hypothesis = words_of(normalized_hypothesis);
  const std::int64_t words = std::ssize(of_reference);
  const auto same = std::ranges::mismatch(of_reference, of_hypothesis);
  of_reference.erase(of_reference.begin(), same.in1);
  of_hypothesis.erase(of_hypothesis.begin(), same.in2);
  while (!of_reference.empty() && !of_hypothesis.empty() &&
         of_reference.back() == of_hypothesis.back()) {
    of_reference.pop_back();
    of_hypothesis.pop_back();
  }
  WordErrors errors = Distances(of_reference, of_hypothesis).errors();
  errors.words = words;
  return errors;
}

}  // namespace hybrid_trainer
