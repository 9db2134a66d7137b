#pragma once

#include "hybrid_trainer/generation/batch_decoder.h"
#include "hybrid_trainer/generation/text_generation.h"

namespace hybrid_trainer {

struct WrittenText {
  std::string text;         // behind the prompt
  std::int64_t tokens = 0;  // made
};

/// Continues texts (check_text), as many at a time as the decoder has rows; one that ends makes
/// place for the next. What is written of the i-th, from 0 on, is on a processor what continue_text
/// with the seed settings.sampling.seed + i writes of it alone, whatever is beside it. `done` gets
/// each, in their order. The decoder's rows want room for each text and settings.tokens more, or
/// the model's context. Throws, before any is written, UsageError (settings) and as check_text.
void continue_texts(BatchDecoder& decoder, const Tokenizer& tokenizer,
                    const std::vector<std::vector<std::int32_t>>& texts,
                    const GenerationSettings& settings,
                    const std::function<void(std::size_t i, const WrittenText&)>& done);

}  // namespace hybrid_trainer
