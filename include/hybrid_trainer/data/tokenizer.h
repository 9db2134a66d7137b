#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer {

enum class TokenizerKind { kBytes, kCharacters, kBpe };
const char* name_of(TokenizerKind kind);  // "bytes", "characters", "bpe"

/// Whether a text is the start of a document or continues an earlier part of it.
enum class TextStart { kDocument, kContinuation };

/// Turns bytes into token ids 0 … vocabulary_size - 1 and back. Texts are bytes, not necessarily
/// UTF-8, and decode(encode(x)) == x, except for a prefix space, for every x that encode accepts. A
/// text that spells a special token, such as "<|endoftext|>", is encoded as plain text, never as
/// the special id.
///   bytes       the 256 byte values
///   characters  the distinct code points of a corpus in increasing order, then those of its bytes
///               that are not UTF-8
///   bpe         byte-level byte-pair encoding, as GPT-2's; bytes that are not UTF-8 are words of
///               their own. Unicode classes are those of the PCRE2 that the program runs with
///               (Debian 12: Unicode 14).
/// All const calls may come from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  virtual TokenizerKind kind() const = 0;
  std::int64_t vocabulary_size() const { return static_cast<std::int64_t>(tokens_.size()); }
  /// The id that separates documents; only a BPE tokenizer may have one.
  std::optional<std::int32_t> end_of_text() const { return end_of_text_; }
  /// Whether a document that does not begin with a space is encoded as if it did, as a BPE of
  /// Hugging Face with add_prefix_space does; its decoded text then begins with that space.
  virtual bool adds_prefix_space() const { return false; }
  /// Whether every id means the same bytes to both.
  bool has_tokens_of(const Tokenizer& other) const { return tokens_ == other.tokens_; }
  /// The bytes of one token. Throws DataError where the id is not in the vocabulary.
  std::string_view token_bytes(std::int32_t id) const;

  /// Appends the ids of `text`. A BPE encodes a word over 64 KiB in pieces of that size; returns
  /// the bytes of such words. Throws DataError if a character is not in a characters vocabulary.
  virtual std::int64_t append_tokens(std::string_view text, std::vector<std::int32_t>& ids,
                                     TextStart start = TextStart::kDocument) const = 0;
  std::vector<std::int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const std::int32_t> ids) const;

  /// Writes the tokenizer's files into an existing folder: for bpe `tokenizer.json`, `vocab.json`
  /// and `merges.txt` as Hugging Face reads them for GPT-2; for others our own `tokenizer.json`,
  ///   {"type":"bytes"}
  ///   {"type":"characters","code_points":[10,32,…],"bytes":[255,…]}   (ids in this order)
  /// Throws IoError.
  virtual void save(const std::filesystem::path& folder) const = 0;

 protected:
  Tokenizer(std::vector<std::string> tokens, std::optional<std::int32_t> end_of_text)
      : tokens_(std::move(tokens)), end_of_text_(end_of_text) {}
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  std::vector<std::string> tokens_;
  std::optional<std::int32_t> end_of_text_;
};

std::unique_ptr<Tokenizer> make_byte_tokenizer();
/// A characters tokenizer for the code points of `corpus`.
std::unique_ptr<Tokenizer> make_character_tokenizer(std::string_view corpus);

/// Reads a tokenizer.json (ours, or Hugging Face's byte-level BPE), or a folder that holds one or
/// GPT-2's `vocab.json` and `merges.txt`. The add_prefix_space of a `tokenizer_config.json` beside
/// them takes precedence, as in transformers. Throws MissingInput if there is none, DataError,
/// which names the file, if it is damaged or asks for a normalizer, pre-tokenizer or model that is
/// not supported.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace hybrid_trainer
