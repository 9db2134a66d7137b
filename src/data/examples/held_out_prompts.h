#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/examples/example_rows.h"

namespace hybrid_trainer {

/// Decodes tokens for display: UTF-8, trimmed, without special tokens.
std::string readable_text(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens);

struct HeldOutPrompt {
  /// Tokens of the row's source, or of its prompt if it has no source.
  std::vector<std::int32_t> tokens;
  std::string text{},
      wanted{};  // prompt (the last turn of a chat) and answer for display, without special tokens
};

/// Returns at most `most` distinct prompts of the first rows. Skips plain text, and rows whose
/// answer begins after `longest` tokens.
std::vector<HeldOutPrompt> held_out_prompts(const std::vector<ExampleRow>& rows,
                                            const Tokenizer& tokenizer, std::int64_t most,
                                            std::int64_t longest);

}  // namespace hybrid_trainer
