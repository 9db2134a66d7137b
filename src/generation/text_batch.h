#pragma once

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/generation/text_generation.h"
#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

struct GeneratedText {
  std::string text;                 // after the prompt
  std::int64_t tokens = 0;          // generated tokens
  std::int64_t dropped_tokens = 0;  // tokens dropped from the context before the end
};

using TextCallback = std::function<void(std::size_t i, const GeneratedText&)>;

/// Continues texts in the decoder's rows. No text may be empty. A finished text frees its row for
/// the next one. On the CPU, text i (from 0) equals the result of continue_text with seed
/// settings.sampling.seed + i. Calls `done` for each text, in order. The decoder's rows need room
/// for each text and settings.tokens more tokens, or for the model's context. Throws UsageError for
/// invalid settings, or like check_text, before writing any text.
void continue_texts(BatchDecoder& decoder, const Tokenizer& tokenizer,
                    std::span<const std::vector<std::int32_t>> texts,
                    const GenerationSettings& settings, const TextCallback& done);

/// Settings of a decoder whose number of rows fits in memory. Model and stream must outlive this.
struct FittingRows {
  LanguageModel& model;
  std::int64_t most;  // wanted rows, 1 or more
  DType dtype;
  const Stream& stream;
  std::function<void(std::int64_t rows)> fewer;  // called with the reduced number
};

/// Continues texts in as many rows as fit in memory. If memory runs out, restarts at the first
/// unfinished text with half the rows. Throws OutOfMemory if one row does not fit.
void continue_texts(const FittingRows& rows, const Tokenizer& tokenizer,
                    std::span<const std::vector<std::int32_t>> texts,
                    const GenerationSettings& settings, const TextCallback& done);

/// Calls `write` while the model computes in `dtype`, with rounded inputs if that is faster, and
/// returns the generated texts. Restores the model's settings. Returns none if memory is short.
std::vector<std::string> generate_in_dtype(LanguageModel& model, DType dtype, const Stream& stream,
                                           const std::function<std::vector<std::string>()>& write);

}  // namespace hybrid_trainer
