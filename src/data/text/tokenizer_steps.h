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

/// Reads the normalizer of a tokenizer.json; returns an empty list if there is none. This function
/// and the next throw DataError with the JSON path if something is not supported.
/// `adds_prefix_space` overrides the setting of a ByteLevel that makes words.
std::vector<NormalizerStep> read_normalizer(const std::optional<JsonPlace>& place);
PreTokenizer read_pre_tokenizer(const std::optional<JsonPlace>& place,
                                std::optional<bool> adds_prefix_space);
/// Reads a decoder. Without one, tokens are separated by blanks, as in Hugging Face's tokenizers,
/// except byte-level tokens (`by_bytes`), which only a ByteLevel decoder turns into text.
std::vector<DecoderStep> read_decoder(const std::optional<JsonPlace>& place, bool by_bytes);

/// Places of one text and of a pair among the tokens that a post-processor adds. `pair` is empty if
/// there is no template for it.
struct InputTemplates {
  std::vector<TemplatePiece> single = {}, pair = {};
};
/// Reads a post-processor. Returns none if it adds nothing. Ids must be below `ids`.
std::optional<InputTemplates> read_post_processor(const JsonPlace& place, std::size_t ids);

/// Kind of words in a BPE.
enum class BpeWords {
  kGpt2,  // a match of GPT-2's expression; for the next ones see word_splitter.h
  kLlama3,
  kQwen2,
  kQwen35,
  kTekken,
  kGpt4o,
  kGpt2Digits,  // each digit, and GPT-2's words between them
  kWholeText,   // the whole text, with ▁ for each blank and "<0x0A>" for a byte without a token
  kOther,
};

/// Purpose of a token.
enum class TokenUse { kNone, kText, kUnknown, kByte, kAdded, kSpecial };

/// Description of a BPE, for file formats with their own description.
struct BpeDescription {
  BpeWords words = BpeWords::kOther;
  std::string steps{};          // the pre-tokenizer's JSON, for messages
  bool composes = false;        // text is converted to NFC first
  bool ignores_merges = false;  // a word equal to a token becomes that token
  bool adds_prefix_space = false;
  /// Text of each id in tokenizer.json, with GPT-2's symbols for bytes; "" for an unused id.
  std::vector<std::string> tokens{};
  std::vector<TokenUse> uses{};                               // by id
  std::vector<std::pair<std::string, std::string>> merges{};  // in order
};

/// Describes a tokenizer of kind kBpe. Throws DataError if its files are insufficient.
BpeDescription describe_bpe(const Tokenizer& tokenizer);

}  // namespace hybrid_trainer
