#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/text/json_place.h"
#include "src/data/text/text_pipeline.h"
#include "src/data/text/token_texts.h"

namespace hybrid_trainer {

struct PreTokenizer {
  std::vector<PreTokenizerStep> steps;
  bool by_bytes = false;  // a ByteLevel makes symbols of bytes
  bool adds_prefix_space = false;
};

/// The parts of a tokenizer.json; none is an empty list. `adds_prefix_space` takes precedence where
/// a ByteLevel makes the words. Throw DataError by the JSON path where something is not supported.
std::vector<NormalizerStep> read_normalizer(const std::optional<JsonPlace>& place);
PreTokenizer read_pre_tokenizer(const std::optional<JsonPlace>& place,
                                std::optional<bool> adds_prefix_space);
/// Without a decoder tokens stand apart, as Hugging Face's tokenizers has it; but those of bytes
/// (`by_bytes`) are decoded as ByteLevel does, since nothing else makes text of them.
std::vector<DecoderStep> read_decoder(const std::optional<JsonPlace>& place, bool by_bytes);

/// What a BPE takes for a word.
enum class BpeWords {
  kGpt2,  // a match of GPT-2's expression, as are the next ones of others' (word_splitter.h)
  kLlama3,
  kQwen2,
  kQwen35,
  kTekken,
  kGpt4o,
  kGpt2Digits,  // each digit, and GPT-2's between them
  kWholeText,   // everything, with ▁ for each blank and "<0x0A>" for a byte without a token
  kOther,
};

/// What a token is for.
enum class TokenUse { kNone, kText, kUnknown, kByte, kAdded, kSpecial };

/// What a BPE consists of, for files that describe one in their own way.
struct BpeDescription {
  BpeWords words = BpeWords::kOther;
  std::string steps{};          // of the pre-tokenizer, as tokenizer.json has them, for messages
  bool composes = false;        // text is brought to NFC first
  bool ignores_merges = false;  // a word that is a token is that token
  bool adds_prefix_space = false;
  /// By id: as tokenizer.json spells them, those of bytes by GPT-2's symbols; "" of an id without a
  /// token.
  std::vector<std::string> tokens{};
  std::vector<TokenUse> uses{};                               // by id
  std::vector<std::pair<std::string, std::string>> merges{};  // in their order
};

/// Of a tokenizer of kind kBpe. Throws DataError where its files do not describe it.
BpeDescription describe_bpe(const Tokenizer& tokenizer);

}  // namespace hybrid_trainer
