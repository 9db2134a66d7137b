#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hybrid_trainer/fine_tuning/example_rows.h"

namespace hybrid_trainer {

/// Whether text that spells the token is the token only where special tokens are meant.
bool is_special_token(const Tokenizer& tokenizer, std::int32_t id);
/// Whether the token stands for white space alone.
bool is_blank_token(const Tokenizer& tokenizer, std::int32_t id);

/// The tokens that end what rows teach to write (ExampleRow::end_token), in increasing order;
/// without those behind which a row teaches to go on, as behind the end of a chain of thought.
std::vector<std::int32_t> end_tokens_of(std::span<const ExampleRow> rows,
                                        const Tokenizer& tokenizer);

}  // namespace hybrid_trainer
