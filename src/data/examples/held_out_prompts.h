#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/examples/example_rows.h"

namespace hybrid_trainer {

/// Decodes tokens for display: UTF-8, trimmed, without special tokens.
std::string readable_text(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens);

/// The prompt of an example row and the row's answer.
struct HeldOutPrompt {
  std::vector<std::int32_t> tokens;  // of the row's prompt, or of its source if it has one
  std::string text{},
      wanted{};  // for display as UTF-8 without special tokens; a chat's text is its last turn
};

/// Returns the prompts of the first rows that have one: at most `most`, without duplicates. A row
/// has no prompt if it is plain text, or if its answer begins after `longest` tokens.
std::vector<HeldOutPrompt> held_out_prompts(const std::vector<ExampleRow>& rows,
                                            const Tokenizer& tokenizer, std::int64_t most,
                                            std::int64_t longest);

}  // namespace hybrid_trainer
