#include "src/data/text/character_tokenizer.h"

#include <cstdio>

#include "hybrid_trainer/core/error.h"
#include "src/data/text/unicode.h"
#include "src/data/text/word_splitter.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

constexpr std::int32_t kUnknown = -1;

std::vector<std::string> symbols_as_bytes(const std::vector<char32_t>& code_points,
                                          const std::vector<unsigned char>& bytes) {
  std::vector<std::string> tokens;
  for (const char32_t value : code_points) append_utf8(value, tokens.emplace_back());
  for (const unsigned char byte : bytes) tokens.emplace_back(1, static_cast<char>(byte));
  return tokens;
}

TokenizerFiles files_of(const std::vector<char32_t>& code_points,
                        const std::vector<unsigned char>& bytes) {
  boost::json::array values, stray;
  for (const char32_t value : code_points) values.emplace_back(std::uint64_t{value});
  for (const unsigned char byte : bytes) stray.emplace_back(std::uint64_t{byte});
  return own_file({{"type", "characters"}, {"code_points", values}, {"bytes", stray}});
}

class CharacterTokenizer : public Tokenizer {
 public:
  CharacterTokenizer(std::vector<char32_t> code_points, std::vector<unsigned char> bytes)
      : Tokenizer(symbols_as_bytes(code_points, bytes), {}, files_of(code_points, bytes)),
        code_points_(std::move(code_points)),
        bytes_(std::move(bytes)) {
    std::int32_t id = 0;  // at most 0x110000 + 256
    byte_ids_.fill(kUnknown);
    id_of_.assign(code_points_.empty() ? 0 : code_points_.back() + 1, kUnknown);
    for (const char32_t value : code_points_) id_of_[value] = id++;
    for (const unsigned char byte : bytes_) byte_ids_[byte] = id++;
  }

  TokenizerKind kind() const override { return TokenizerKind::kCharacters; }

  void append_tokens(std::string_view text, std::vector<std::int32_t>& ids, TextStart,
                     ControlText) const override {
    for_each_character(text, [&](CodePoint found, std::size_t begin, std::size_t) {
      std::int32_t id = kUnknown;
      if (found.bytes == 0) {
        id = byte_ids_[static_cast<unsigned char>(text[begin])];
      } else if (found.value < id_of_.size()) {
        id = id_of_[found.value];
      }
      if (id == kUnknown) throw_unknown(text, begin, found);
      ids.push_back(id);
    });
  }
  std::size_t last_split_point(std::string_view text, std::size_t first) const override {
    return last_character(text, first);
  }

 private:
  [[noreturn]] void throw_unknown(std::string_view text, std::size_t offset,
                                  CodePoint found) const {
    char code[16];
    if (found.bytes == 0) {
      std::snprintf(code, sizeof(code), "byte 0x%02X", static_cast<unsigned char>(text[offset]));
    } else {
      std::snprintf(code, sizeof(code), "U+%04X ", std::uint32_t{found.value});
    }
    throw DataError(concat("character ", code, text.substr(offset, found.bytes), " at byte ",
                           offset, " is not among the ", vocabulary_size(),
                           " characters of the tokenizer; use a tokenizer made from a text with "
                           "this character, or the tokenizer bytes"));
  }

  std::vector<char32_t> code_points_;
  std::vector<unsigned char> bytes_;
  std::vector<std::int32_t> id_of_;  // indexed by code point
  std::array<std::int32_t, 256> byte_ids_;
};

/// Reads numbers below `limit` in strictly ascending order.
template <class T>
std::vector<T> increasing_numbers(const JsonPlace& place, std::int64_t limit) {
  std::vector<T> numbers;
  std::int64_t previous = -1;
  for (const JsonPlace& item : place.items()) {
    const boost::json::value& value = item.value();
    const std::int64_t* const number = value.if_int64();
    if (number == nullptr || *number <= previous || *number >= limit) {
      place.fail("has ", shortened(value), " after ", previous, "; want increasing integers below ",
                 limit);
    }
    previous = *number;
    numbers.push_back(static_cast<T>(previous));
  }
  return numbers;
}

std::vector<std::string> all_bytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return tokens;
}

class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() : Tokenizer(all_bytes(), {}, own_file({{"type", "bytes"}})) {}
  TokenizerKind kind() const override { return TokenizerKind::kBytes; }
  void append_tokens(std::string_view text, std::vector<std::int32_t>& ids, TextStart,
                     ControlText) const override {
    ids.reserve(ids.size() + text.size());
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  }
  std::size_t last_split_point(std::string_view text, std::size_t first) const override {
    return last_character(text, first);
  }
};

}  // namespace

TokenizerFiles own_file(const boost::json::object& content) {
  return {{"tokenizer.json", boost::json::serialize(content) + "\n"}};
}

void CharacterSet::add(std::string_view text) {
  for_each_character(text, [&](CodePoint found, std::size_t begin, std::size_t) {
    if (found.bytes == 0) {
      bytes[static_cast<unsigned char>(text[begin])] = true;
    } else {
      code_points[found.value] = true;
    }
  });
}

std::unique_ptr<Tokenizer> CharacterSet::tokenizer() const {
  std::vector<char32_t> values;
  std::vector<unsigned char> invalid;
  for (std::size_t i = 0; i < code_points.size(); ++i) {
    if (code_points[i]) values.push_back(static_cast<char32_t>(i));
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i]) invalid.push_back(static_cast<unsigned char>(i));
  }
  return std::make_unique<CharacterTokenizer>(std::move(values), std::move(invalid));
}

std::unique_ptr<Tokenizer> make_character_tokenizer(std::string_view corpus) {
  CharacterSet characters;
  characters.add(corpus);
  return characters.tokenizer();
}

std::unique_ptr<Tokenizer> load_character_tokenizer(const JsonPlace& file) {
  return std::make_unique<CharacterTokenizer>(
      increasing_numbers<char32_t>(file.at("code_points"), 0x110000),
      increasing_numbers<unsigned char>(file.at("bytes"), 256));
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace hybrid_trainer
