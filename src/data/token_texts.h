#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// A step from the tokens' spellings to text, of tokenizer.json's "decoder".
struct DecoderStep {
  enum class Kind {
    kByteLevel,
    kReplace,
    kByteFallback,
    kFuse,
    kStrip,
    kMetaspace,
    kBlanks,  // between the tokens
  } kind;
  std::string pattern = {};  // of kReplace; kStrip's character; kMetaspace's ▁
  std::string content = {};  // of kReplace
  std::size_t start = 0;     // most characters that kStrip removes at the start of each part
  std::size_t stop = 0;      // and at its end
  bool strips_first = true;  // kMetaspace: ▁ of the first token stand for nothing
};

/// The text of tokens that are spelled as `parts`, as Hugging Face's tokenizers makes it; but where
/// that has U+FFFD for what is not UTF-8 by kByteLevel, the bytes are kept.
std::string decoded(std::vector<std::string> parts, const std::vector<DecoderStep>& steps);

/// The bytes of a token that follows others: nothing is stripped, and a byte's token is that byte.
std::string decoded_within(const std::string& token, const std::vector<DecoderStep>& steps);

}  // namespace hybrid_trainer
