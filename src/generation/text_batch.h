#pragma once

#include "hybrid_trainer/generation/text_generation.h"

namespace hybrid_trainer {

struct GeneratedText {
  std::string text;                 // text after the prompt
  std::int64_t tokens = 0;          // generated tokens
  std::int64_t dropped_tokens = 0;  // tokens dropped from the context before the end
};

using TextCallback = std::function<void(std::size_t i, const GeneratedText&)>;

/// Continues texts in the decoder's rows. No text may be empty. The row of a finished text is used
/// for the next text. On the CPU, text i (from 0) equals the result of continue_text with seed
/// settings.sampling.seed + i. Calls `done` for each text, in order. A row needs room for the text
/// and settings.tokens more tokens, but at most for the model's context. Throws UsageError for
/// invalid settings, and the errors of check_text, before it writes any text.
void continue_texts(BatchDecoder& decoder, const Tokenizer& tokenizer,
                    std::span<const std::vector<std::int32_t>> texts,
                    const GenerationSettings& settings, const TextCallback& done);

/// Settings of a decoder whose number of rows fits in memory. Model and stream must outlive this.
struct FittingRows {
  LanguageModel& model;
  std::int64_t most;  // maximum number of rows, at least 1
  DType dtype;
  const Stream& stream;
  std::function<void(std::int64_t rows)> fewer;  // called with a reduced number of rows
};

/// Continues texts in as many rows as fit in memory. If memory runs out, restarts at the first
/// unfinished text with half the rows. Throws OutOfMemory if one row does not fit.
void continue_texts(const FittingRows& rows, const Tokenizer& tokenizer,
                    std::span<const std::vector<std::int32_t>> texts,
                    const GenerationSettings& settings, const TextCallback& done);

/// Calls `write` while the model computes in `dtype`, with rounded inputs if this is faster.
/// Returns the generated texts, or nullopt if there is not enough memory.
std::vector<std::string> generate_in_dtype(LanguageModel& model, DType dtype, const Stream& stream,
                                           const std::function<std::vector<std::string>()>& write);

}  // namespace hybrid_trainer
