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

enum class TokenizerKind { kBytes, kCharacters, kBpe, kWordPiece, kUnigram };
const char* name_of(TokenizerKind kind);  // "bytes", "characters", "bpe", "wordpiece", "unigram"
/// Returns whether Hugging Face's libraries read tokenizers of this kind.
bool is_hugging_face(TokenizerKind kind);

/// Position of a text: the start of a document or the continuation of an earlier part.
enum class TextStart { kDocument, kContinuation };

/// How text that spells a special token, such as "<|endoftext|>", is encoded. It stays text in raw
/// data. In rendered chats, rows of examples and prompts, it becomes the token.
enum class ControlText { kAsText, kAsTokens };
/// Returns "tokens" and "text", the values of `--control-tokens` and data.control_tokens.
const std::vector<std::string>& control_text_names();
/// Returns the value with this name. Throws UsageError for an unknown name.
ControlText control_text_of(const std::string& name);

/// Selects the text of a pair that is truncated to a limit. A single text is always truncated.
enum class Truncation { kLongestFirst, kOnlyFirst, kOnlySecond };
/// End of a text that truncation removes.
enum class TruncatedEnd { kRight, kLeft };

/// Limit of the number of ids in a model's input.
struct TokenLimit {
  std::int64_t ids = INT32_MAX;  // maximum, including the tokens of the template
  Truncation truncation = Truncation::kLongestFirst;
  TruncatedEnd end = TruncatedEnd::kRight;
};

/// Ids of one text or a pair for an encoder, and the type of each id: usually 0 for the first text
/// and 1 for the second.
struct ModelInput {
  std::vector<std::int32_t> ids, types;
};

/// An element of a template: a token, or the placeholder of a text.
struct TemplatePiece {
  static constexpr std::int32_t kFirstText = -1, kSecondText = -2;
  std::int32_t id = kFirstText;
  std::int32_t type = 0;  // type of the token or of the text
};

inline constexpr std::array kTokenizerFiles{"tokenizer.json",
                                            "tokenizer_config.json",
                                            "special_tokens_map.json",
                                            "added_tokens.json",
                                            "vocab.json",
                                            "vocab.txt",
                                            "merges.txt",
                                            "tokenizer.model",
                                            "spiece.model",
                                            "sentencepiece.bpe.model",
                                            "chat_template.jinja",
                                            "generation_config.json"};
using TokenizerFiles = std::map<std::string, std::string>;  // contents by name

/// Converts texts (any bytes) to token ids 0 … vocabulary_size - 1 and back. Kinds:
///   bytes       the 256 byte values
///   characters  the distinct code points of a corpus in ascending order, then its bytes that are
///               not UTF-8
///   bpe         byte-pair encoding by a tokenizer.json: the same ids as Hugging Face's tokenizers
///               0.23 with add_special_tokens off and, for ControlText::kAsText,
///               encode_special_tokens on. If a pattern splits text into words, consecutive bytes
///               that are not UTF-8 form a word. They are encoded as bytes, or as the unknown token
///               if the tokenizer has no tokens for bytes.
///   wordpiece   longest pieces of words from the left, by a tokenizer.json or BERT's vocab.txt
///   unigram     most probable pieces, by a tokenizer.json
/// Like bpe, wordpiece and unigram give the same ids as Hugging Face's tokenizers. They read a byte
/// that is not UTF-8 as U+FFFD. For bytes, characters, and byte-level BPE without a normalizer,
/// decode(encode(x)) == x for every x that encode accepts, except for an added prefix space. All
/// const functions are thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  virtual TokenizerKind kind() const = 0;
  std::int64_t vocabulary_size() const { return static_cast<std::int64_t>(tokens_.size()); }
  /// Returns the minimum number of rows of a model's embedding table.
  virtual std::int64_t min_table_rows() const { return vocabulary_size(); }
  /// Returns the id of the token that separates documents, if any. Only BPE tokenizers have this
  /// token.
  std::optional<std::int32_t> end_of_text() const { return end_of_text_; }
  /// Returns whether encoding adds a space to the start of documents, like add_prefix_space.
  virtual bool adds_prefix_space() const { return false; }
  /// Returns whether every id means the same bytes in both tokenizers.
  bool has_same_tokens(const Tokenizer& other) const { return tokens_ == other.tokens_; }
  /// Returns the bytes of a token that is not the first of a text. Throws DataError if the id is
  /// unknown.
  std::string_view token_bytes(std::int32_t id) const;

  /// Returns the template for one text or a pair from a tokenizer.json's post-processor. Without a
  /// post-processor, the template contains only the texts. Empty if pairs are not supported.
  virtual std::vector<TemplatePiece> input_template(bool is_pair) const;
  /// Return the tokens that the template places before and after a document.
  std::vector<std::int32_t> template_start() const;
  std::vector<std::int32_t> template_end() const;

  /// Appends the ids of `text`. Throws DataError if a character cannot be encoded.
  virtual void append_tokens(std::string_view text, std::vector<std::int32_t>& ids,
                             TextStart start = TextStart::kDocument,
                             ControlText control = ControlText::kAsText) const = 0;
  std::vector<std::int32_t> encode(std::string_view text,
                                   ControlText control = ControlText::kAsText) const;
  /// Returns a document's ids. Prepends template_start unless the text already spells these tokens.
  std::vector<std::int32_t> encode_document(std::string_view text, ControlText control) const;
  /// Returns a model's input for one text or a pair, truncated to `limit`, like Hugging Face.
  /// Throws DataError if the template has no second text or no id remains for the truncated text.
  ModelInput encode_texts(std::string_view first, std::optional<std::string_view> second = {},
                          const TokenLimit& limit = {},
                          ControlText control = ControlText::kAsText) const;
  /// Returns the text of a document's tokens, with special tokens spelled out. The text of
  /// byte-level tokens may not be UTF-8; "ByteFallback" bytes that form no character become U+FFFD.
  virtual std::string decode(std::span<const std::int32_t> ids) const;

  /// Returns the last position, not before `first`, at which the text can be split into a document
  /// and a continuation without changing its tokens, for any text that follows, or 0 if there is
  /// none.
  virtual std::size_t last_split_point(std::string_view text, std::size_t first) const = 0;

  /// Writes the tokenizer's files to an existing folder. Loaded tokenizers write the original
  /// files, byte for byte. A trained bpe tokenizer writes `tokenizer.json`, `vocab.json` and
  /// `merges.txt` in Hugging Face's format for GPT-2; a trained wordpiece tokenizer, BERT's
  /// `tokenizer.json` and `vocab.txt`. Others write this project's `tokenizer.json`:
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
/// Special tokens, in ascending order, and the mask token of masked language models.
struct SpecialTokenIds {
  std::vector<std::int32_t> ids;
  std::optional<std::int32_t> mask;
};
/// Returns the special tokens that the tokenizer's files list.
SpecialTokenIds special_token_ids_of(const Tokenizer& tokenizer);

/// Returns for each token whether it continues the word of the token before it: in WordPiece a
/// token with the prefix ##, else a token whose text does not begin with a blank (▁ or Ġ).
std::vector<bool> word_continuations(const Tokenizer& tokenizer);

/// Makes a characters tokenizer for the code points of `corpus`.
std::unique_ptr<Tokenizer> make_character_tokenizer(std::string_view corpus);

/// Reads a tokenizer.json (this project's or Hugging Face's), a folder that contains one, GPT-2's
/// `vocab.json` and `merges.txt`, or BERT's `vocab.txt`, or the tokenizer of a GGUF file. BERT's
/// defaults apply unless `tokenizer_config.json` sets do_lower_case, strip_accents,
/// tokenize_chinese_chars or the names of special tokens. A `tokenizer_config.json` overrides
/// GPT-2's add_prefix_space as in transformers, adds its special tokens to those in tokenizer.json,
/// and names the end-of-text token (eos_token). Without it, the end-of-text token is
/// "<|endoftext|>". Throws MissingInput if there is no tokenizer. Throws DataError, naming the file
/// and JSON path, if it is damaged or not supported. Warns about unknown keys.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);
/// Writes the files to a folder, which is created if necessary. Throws IoError.
void write_tokenizer_files(const TokenizerFiles& files, const std::filesystem::path& folder);
/// Returns whether the path is a folder with a tokenizer's files, valid or not, or a GGUF file.
bool contains_tokenizer(const std::filesystem::path& folder);
/// Returns an error message for a folder without a tokenizer, with a remedy.
std::string missing_tokenizer_message(const std::filesystem::path& folder);

}  // namespace hybrid_trainer
