#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
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

/// How text is read that spells a special token, such as "<|endoftext|>": raw data keep it as text;
/// in a rendered chat, a row of examples and a prompt it becomes the token.
enum class ControlText { kAsText, kAsTokens };
/// "tokens" and "text", the values of `--control-tokens` and data.control_tokens.
const std::vector<std::string>& control_text_names();
/// Throws UsageError for another name.
ControlText control_text_of(const std::string& name);

/// Files that may belong to a tokenizer in its folder.
inline constexpr std::array kTokenizerFiles{"tokenizer.json",
                                            "tokenizer_config.json",
                                            "special_tokens_map.json",
                                            "added_tokens.json",
                                            "vocab.json",
                                            "merges.txt",
                                            "tokenizer.model",
                                            "chat_template.jinja",
                                            "generation_config.json"};
using TokenizerFiles = std::map<std::string, std::string>;  // contents by name

/// Turns bytes into token ids 0 … vocabulary_size - 1 and back. Texts are bytes, not necessarily
/// UTF-8.
///   bytes       the 256 byte values
///   characters  the distinct code points of a corpus in increasing order, then those of its bytes
///               that are not UTF-8
///   bpe         byte-pair encoding by a tokenizer.json: the ids are those that Hugging Face's
///               tokenizers 0.23 gives to the same text with add_special_tokens off and, for
///               ControlText::kAsText, encode_special_tokens on. A run of bytes that are not UTF-8
///               is a word of its own where a pattern makes words, and is encoded as bytes, or as
///               unknown where the tokenizer has no tokens for bytes.
/// With bytes, characters, and a bpe of all bytes without normalizer, decode(encode(x)) == x for
/// every x that encode accepts, but for a prefix space. All const calls may come from several threads at
/// once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  virtual TokenizerKind kind() const = 0;
  std::int64_t vocabulary_size() const { return static_cast<std::int64_t>(tokens_.size()); }
  /// Rows that a model's table has at least: only special tokens, if any, have ids from there on.
  virtual std::int64_t least_table() const { return vocabulary_size(); }
  /// The id that separates documents; only a BPE tokenizer may have one.
  std::optional<std::int32_t> end_of_text() const { return end_of_text_; }
  /// Whether a document that does not begin with a space is encoded as if it did, as a BPE of
  /// Hugging Face with add_prefix_space does; its decoded text then begins with that space.
  virtual bool adds_prefix_space() const { return false; }
  /// Whether every id means the same bytes to both.
  bool has_tokens_of(const Tokenizer& other) const { return tokens_ == other.tokens_; }
  /// The bytes of one token behind others. Throws DataError where the id is not in the vocabulary.
  std::string_view token_bytes(std::int32_t id) const;

  /// Tokens that a tokenizer.json's template puts before a document, and behind one: a
  /// beginning-of-text token for most. Nothing adds them but who asks for them.
  virtual std::vector<std::int32_t> template_start() const { return {}; }
  virtual std::vector<std::int32_t> template_end() const { return {}; }

  /// Appends the ids of `text`. Throws DataError where a character has, and comes to, no token.
  virtual void append_tokens(std::string_view text, std::vector<std::int32_t>& ids,
                             TextStart start = TextStart::kDocument,
                             ControlText control = ControlText::kAsText) const = 0;
  std::vector<std::int32_t> encode(std::string_view text,
                                   ControlText control = ControlText::kAsText) const;
  /// The ids of a whole document: behind template_start, unless the text spells that itself.
  std::vector<std::int32_t> encode_document(std::string_view text, ControlText control) const;
  /// The text of a document's tokens, special ones spelled out. By bytes it may not be UTF-8; what a
  /// "ByteFallback" cannot make a character of is U+FFFD.
  virtual std::string decode(std::span<const std::int32_t> ids) const;

  /// The last place from `first` on where a text may be cut so that its parts, the second as a
  /// continuation, have the tokens of the whole, whatever comes behind it; 0 if there is none.
  virtual std::size_t last_cut(std::string_view text, std::size_t first) const = 0;

  /// Writes the tokenizer's files into an existing folder: those that it was read from, byte for
  /// byte; for a bpe that was trained `tokenizer.json`, `vocab.json` and `merges.txt` as Hugging
  /// Face reads them for GPT-2; for others our own `tokenizer.json`,
  ///   {"type":"bytes"}
  ///   {"type":"characters","code_points":[10,32,…],"bytes":[255,…]}   (ids in this order)
  /// Throws IoError.
  void save(const std::filesystem::path& folder) const;
  const TokenizerFiles& files() const { return files_; }

 protected:
  Tokenizer(std::vector<std::string> tokens, std::optional<std::int32_t> end_of_text,
            TokenizerFiles files)
      : tokens_(std::move(tokens)), end_of_text_(end_of_text), files_(std::move(files)) {}

 private:
  std::vector<std::string> tokens_;
  std::optional<std::int32_t> end_of_text_;
  TokenizerFiles files_;
};

std::unique_ptr<Tokenizer> make_byte_tokenizer();
/// A characters tokenizer for the code points of `corpus`.
std::unique_ptr<Tokenizer> make_character_tokenizer(std::string_view corpus);

/// Reads a tokenizer.json (ours, or Hugging Face's of a BPE), a folder that holds one or GPT-2's
/// `vocab.json` and `merges.txt`, or a GGUF file's. Of a `tokenizer_config.json` beside them the add_prefix_space takes
/// precedence over that of GPT-2's pre-tokenizer, as in transformers, added and special tokens join
/// those of tokenizer.json, and eos_token is the end-of-text token, else "<|endoftext|>". Throws
/// MissingInput if there is none, DataError, which names the file and the JSON path, if it is
/// damaged or asks for anything that is not supported. Warns of keys that are not known.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);
/// Writes them into a folder, which is made if it is not there. Throws IoError.
void write_tokenizer_files(const TokenizerFiles& files, const std::filesystem::path& folder);
/// Whether a folder has the files of one, sound or not, or is a GGUF file.
bool holds_tokenizer(const std::filesystem::path& folder);
/// That a folder holds no tokenizer: what is there in place of it, and what to do.
std::string absent_tokenizer(const std::filesystem::path& folder);

}  // namespace hybrid_trainer
