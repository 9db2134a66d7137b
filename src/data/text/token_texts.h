#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer {

/// Returns GPT-2's printable code point of each byte. The bytes 33–126, 161–172 and 174–255
/// represent themselves; all other bytes are 256, 257, … in ascending order. Source: openai/gpt-2,
/// encoder.py, bytes_to_unicode.
std::array<char32_t, 256> byte_symbols();

/// Returns all bytes in ascending order of their symbols: the first 256 tokens of GPT-2.
std::array<std::uint8_t, 256> bytes_by_symbol();

/// Converts bytes to symbols in UTF-8, and back; nullopt for a character that is not a symbol.
class ByteSymbolCoder {
 public:
  ByteSymbolCoder();
  std::string to_symbols(std::string_view bytes) const;
  std::optional<std::string> to_bytes(std::string_view symbols) const;

 private:
  static constexpr char32_t kEnd = 324;  // one past the highest symbol
  std::array<char32_t, 256> symbols_;
  std::array<int, kEnd> bytes_;  // -1 if the code point is not a symbol
};

/// A decoding step of tokenizer.json's "decoder".
struct DecoderStep {
  enum class Kind {
    kByteLevel,
    kReplace,
    kByteFallback,
    kFuse,
    kStrip,
    kMetaspace,
    /// Inserts blanks between the tokens, except before a token that begins with the pattern.
    kWordPiece,
    kBlanks,  // inserts blanks between the tokens
  } kind;
  std::string pattern =
      {};  // pattern of kReplace, character of kStrip, ▁ of kMetaspace, or ## of kWordPiece
  std::string content = {};  // replacement for kReplace
  std::size_t start = 0;     // maximum characters that kStrip removes at the start of each part
  std::size_t stop = 0;      // maximum characters that kStrip removes at the end
  bool strips_first = true;  // kMetaspace removes ▁ in the first token
  bool cleans_up = false;    // kWordPiece removes blanks before punctuation within each token
};

/// Decodes tokens spelled as `parts`, like Hugging Face's tokenizers, except that kByteLevel keeps
/// bytes that are not UTF-8 instead of U+FFFD.
std::string decoded(std::vector<std::string> parts, const std::vector<DecoderStep>& steps);

/// Returns the text of a token within a text, without stripping it. A byte token becomes its byte.
std::string decoded_within(const std::string& token, const std::vector<DecoderStep>& steps);

}  // namespace hybrid_trainer
