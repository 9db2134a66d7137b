#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "hybrid_trainer/data/tokenizer.h"

namespace hybrid_trainer {

/// The tokens of a text as an encoder-decoder reads and writes it: between those that the tokenizer puts
/// around a document; behind it at least the end-of-text token, where there is one. It has at most
/// `longest` tokens, of which the last are those behind it.
struct EnclosedText {
  std::vector<std::int32_t> tokens;
  std::int64_t left_out = 0;
};
EnclosedText enclosed_text(std::string_view text, const Tokenizer& tokenizer, ControlText control,
                           std::int64_t longest);

}  // namespace hybrid_trainer
