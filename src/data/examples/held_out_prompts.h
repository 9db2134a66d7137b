#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/examples/example_rows.h"

namespace hybrid_trainer {

/// Tokens as text to be read: UTF-8, without special tokens, and without blanks around it.
std::string readable_text(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens);

/// A prompt of a row of examples, and the answer that the row has.
struct HeldOutPrompt {
  std::vector<std::int32_t> tokens;  // of a row with a source, that
  std::string text{},
      wanted{};  // UTF-8 to be read: without special tokens, of a chat its last turn
};

/// The prompts of the first rows that have one, at most `most`, no two alike. A row of text alone has
/// none, nor has one whose answer begins behind `longest` tokens.
std::vector<HeldOutPrompt> held_out_prompts(const std::vector<ExampleRow>& rows,
                                            const Tokenizer& tokenizer, std::int64_t most,
                                            std::int64_t longest);

}  // namespace hybrid_trainer
