#pragma once

#include <string>
#include <utility>
#include <vector>

#include "hybrid_trainer/data/tokenizer.h"

namespace hybrid_trainer {

/// What a BPE takes for a word.
enum class BpeWords {
  kGpt2,  // a match of GPT-2's expression, as are the next ones of others' (data/word_splitter)
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
