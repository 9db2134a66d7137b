#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/text/json_place.h"
#include "src/data/text/text_pipeline.h"
#include "src/data/text/token_texts.h"

namespace hybrid_trainer {

struct PreTokenizer {
  std::vector<PreTokenizerStep> steps;
  bool by_bytes = false;  // a ByteLevel converts bytes to symbols
  bool adds_prefix_space = false;
};

/// Reads the normalizer of a tokenizer.json. Returns an empty list if there is none.
/// `adds_prefix_space` overrides the setting of a ByteLevel that makes words. Like the next
/// function, throws DataError with the JSON path of an unsupported part.
std::vector<NormalizerStep> read_normalizer(const std::optional<JsonPlace>& place);
PreTokenizer read_pre_tokenizer(const std::optional<JsonPlace>& place,
                                std::optional<bool> adds_prefix_space);
/// Reads a decoder. Without a decoder, tokens are separated by blanks, as in Hugging Face's
/// tokenizers. This does not apply to byte-level tokens (`by_bytes`), which only a ByteLevel
/// decoder turns into text.
std::vector<DecoderStep> read_decoder(const std::optional<JsonPlace>& place, bool by_bytes);

/// Templates that place one text, or a pair of texts, among added tokens. `pair` is empty if there
/// is no template for pairs.
struct InputTemplates {
  std::vector<TemplatePiece> single = {}, pair = {};
};
/// Reads a post-processor. Returns nullopt if it adds no tokens. Ids must be less than `ids`.
std::optional<InputTemplates> read_post_processor(const JsonPlace& place, std::size_t ids);

/// The way in which a BPE splits text into words.
enum class BpeWords {
  kGpt2,  // matches of GPT-2's expression; word_splitter.h lists the next ones
  kLlama3,
  kQwen2,
  kQwen35,
  kTekken,
  kGpt4o,
  kGpt2Digits,  // single digits, and GPT-2's words between them
  /// The whole text, with ▁ in place of each blank and "<0x0A>" in place of a byte without a token.
  kWholeText,
  kOther,
};

enum class TokenUse { kNone, kText, kUnknown, kByte, kAdded, kSpecial };

/// Tokens of a tokenizer by id, for file formats with their own description.
struct TokenList {
  std::vector<std::string> tokens{};  // text in tokenizer.json; "" for an unused id
  std::vector<TokenUse> uses{};
};

struct BpeDescription : TokenList {
  BpeWords words = BpeWords::kOther;
  std::string steps{};          // the pre-tokenizer's JSON, for messages
  bool composes = false;        // text is converted to NFC first
  bool ignores_merges = false;  // a word equal to a token becomes that token
  bool adds_prefix_space = false;
  bool keeps_first_space = false;  // no space is added before a text that begins with one
  std::vector<std::pair<std::string, std::string>> merges{};  // in order
};

BpeDescription describe_bpe(const Tokenizer& tokenizer);

struct WordPieceDescription : TokenList {
  std::optional<std::int64_t> unknown{};  // id
  bool lowers_case = false, strips_accents = false;
};

/// Describes a tokenizer of kind kWordPiece. Throws DataError, naming the part, unless normalizer,
/// words and continuing pieces are BERT's.
WordPieceDescription describe_word_pieces(const Tokenizer& tokenizer);

/// Description of SentencePiece's unigrams, as XLM-RoBERTa uses them.
struct UnigramDescription : TokenList {
  std::vector<double> scores{};           // indexed by id
  std::optional<std::int64_t> unknown{};  // id
  std::string character_map{};            // bytes of the table of replacements; empty: none
};

/// Describes a tokenizer of kind kUnigram. Throws DataError, naming the part, unless words are
/// separated by white space, begin with ▁ and are normalized by at most a table.
UnigramDescription describe_unigrams(const Tokenizer& tokenizer);

}  // namespace hybrid_trainer
