#include "src/data/text/normalizers.h"

#include <utf8proc.h>

#include "hybrid_trainer/core/error.h"
#include "src/data/text/unicode.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

/// Calls f(code point, its bytes) for each character, and appends bytes that are not UTF-8.
template <class F>
void convert_characters(std::string_view text, std::string& result, const F& f) {
  for_each_character(text, [&](CodePoint character, std::size_t begin, std::size_t end) {
    const std::string_view bytes = text.substr(begin, end - begin);
    character.bytes == 0 ? void(result += bytes) : f(character.value, bytes);
  });
}

/// Returns whether BERT separates the character. BERT does not separate U+2B820 to U+2B91F.
bool is_ideograph(char32_t value) {
  constexpr std::pair<char32_t, char32_t> kBlocks[] = {
      {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
      {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return std::ranges::any_of(
      kBlocks, [&](const auto& block) { return value >= block.first && value <= block.second; });
}

bool is_dropped_for_translation(char32_t value) {
  return (value >= 0x01 && value <= 0x08) || value == 0x0B || (value >= 0x0E && value <= 0x1F) ||
         value == 0x7F || value == 0x8F || value == 0x9F;
}

bool is_blank_for_translation(char32_t value) {
  return value == 0x09 || value == 0x0A || value == 0x0C || value == 0x0D || value == 0x1680 ||
         (value >= 0x200B && value <= 0x200F) || value == 0x2028 || value == 0x2029 ||
         value == 0x2581 || value == 0xFEFF || value == 0xFFFD;
}

[[noreturn]] void throw_damaged(const char* what) {
  throw DataError(concat("precompiled_charsmap is damaged: ", what));
}

}  // namespace

std::string without_controls(std::string_view text) {
  std::string result;
  convert_characters(text, result, [&](char32_t value, std::string_view bytes) {
    if ((character_traits()[value] & kControl) == 0) result += is_white_space(value) ? " " : bytes;
  });
  return result;
}

std::string with_spaced_ideographs(std::string_view text) {
  std::string result;
  convert_characters(text, result, [&](char32_t value, std::string_view bytes) {
    is_ideograph(value) ? void(result.append(" ").append(bytes) += ' ') : void(result += bytes);
  });
  return result;
}

std::string without_traits(std::string_view text, int traits) {
  std::string result;
  convert_characters(text, result, [&](char32_t value, std::string_view bytes) {
    if ((character_traits()[value] & traits) == 0) result += bytes;
  });
  return result;
}

std::string stripped(std::string_view text, bool left, bool right) {
  std::size_t begin = text.size(), end = 0;  // range of the text without white space
  for_each_character(text, [&](CodePoint character, std::size_t at, std::size_t after) {
    if (character.bytes == 0 || is_white_space(character.value)) return;
    begin = std::min(begin, at);
    end = after;
  });
  if (!left) begin = 0;
  if (!right) end = text.size();
  return std::string(begin < end ? text.substr(begin, end - begin) : "");
}

std::string for_translation(std::string_view text) {
  std::string result;
  convert_characters(text, result, [&](char32_t value, std::string_view bytes) {
    if (!is_dropped_for_translation(value)) result += is_blank_for_translation(value) ? " " : bytes;
  });
  return result;
}

CharacterMap::CharacterMap(std::string bytes) {
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 4; i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
    return value;
  };
  const std::size_t size = bytes.size() < 4 ? 0 : word(0);
  if (size < 4 || size % 4 != 0 || size > bytes.size() - 4) throw_damaged("its trie has no end");
  for (std::size_t at = 4; at < 4 + size; at += 4) units_.push_back(word(at));
  texts_ = bytes.substr(4 + size);
  constexpr std::size_t kLongest = 256;  // 33 in nmt_nfkc
  std::size_t begin = 0;
  for (std::size_t end; (end = texts_.find('\0', begin)) != std::string::npos; begin = end + 1)
    if (end - begin > kLongest) throw_damaged("a replacement exceeds 256 bytes");
  if (begin != texts_.size()) throw_damaged("its last replacement has no end");
  if (valid_utf8_bytes(texts_, 0) != texts_.size()) throw_damaged("a replacement is not UTF-8");
}

std::uint32_t CharacterMap::unit(std::size_t place) const {
  if (place >= units_.size()) throw_damaged("its trie points outside itself");
  return units_[place];
}

const char* CharacterMap::find(std::string_view part) const {
  const auto offset = [](std::uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); };
  std::size_t place = offset(unit(0));
  for (const char c : part) {
    const auto byte = static_cast<unsigned char>(c);
    place ^= byte;
    const std::uint32_t node = unit(place);
    if (byte == 0 || (node & 0x800000FF) != byte) return nullptr;
    place ^= offset(node);
    if ((node & 0x100) == 0) continue;  // no text ends here
    const std::size_t text = unit(place) & 0x7FFFFFFF;
    if (text >= texts_.size() || is_continuation(texts_[text]))
      throw_damaged("its trie points outside its replacements");
    return &texts_[text];
  }
  return nullptr;
}

void CharacterMap::append(std::string_view cluster, std::string& result) const {
  constexpr std::size_t kTooLong = 6;
  if (cluster.size() < kTooLong) {
    if (const char* text = find(cluster)) return void(result += text);
  }
  convert_characters(cluster, result, [&](char32_t, std::string_view bytes) {
    const char* text = find(bytes);
    text == nullptr ? void(result += bytes) : void(result += text);
  });
}

std::string CharacterMap::replaced(std::string_view text) const {
  std::string copy, result;
  const std::string_view known = known_to_pcre2(text, copy);  // utf8proc lacks the same characters
  std::size_t begin = 0;
  utf8proc_int32_t before = 0, state = 0;
  for (std::size_t i = 0; i < known.size();) {
    const CodePoint found = decode_utf8(known, i);
    const auto value = static_cast<utf8proc_int32_t>(found.value);
    if (i > 0 && utf8proc_grapheme_break_stateful(before, value, &state)) {
      append(text.substr(begin, i - begin), result);
      begin = i;
    }
    before = value;
    i += found.bytes;
  }
  append(text.substr(begin), result);
  return result;
}

}  // namespace hybrid_trainer
