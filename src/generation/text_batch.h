#pragma once

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/generation/text_generation.h"
#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

struct WrittenText {
  std::string text;            // behind the prompt
  std::int64_t tokens = 0;     // made
  std::int64_t forgotten = 0;  // that were seen, but no longer when the last one was made
};

using TextDone = std::function<void(std::size_t i, const WrittenText&)>;

/// Continues texts, none empty, as many at a time as the decoder has rows; one that ends makes
/// place for the next. What is written of the i-th, from 0 on, is on a processor what continue_text
/// with the seed settings.sampling.seed + i writes of it alone, whatever is beside it. `done` gets
/// each, in their order. The decoder's rows want room for each text and settings.tokens more, or
/// the model's context. Throws, before any is written, UsageError (settings) and as check_text.
void continue_texts(BatchDecoder& decoder, const Tokenizer& tokenizer,
                    std::span<const std::vector<std::int32_t>> texts,
                    const GenerationSettings& settings, const TextDone& done);

/// The rows of a decoder that is made for the texts. Model and stream must outlive this.
struct FittingRows {
  LanguageModel& model;
  std::int64_t most;  // wanted, 1 or more
  DType dtype;
  const Stream& stream;
  std::function<void(std::int64_t rows)> fewer;  // is told how many it will be instead
};

/// Continues texts in as many rows as there is memory for. If memory runs out, goes on from the
/// first text that is not done with half as many rows. Throws OutOfMemory if one row is too many.
void continue_texts(const FittingRows& rows, const Tokenizer& tokenizer,
                    std::span<const std::vector<std::int32_t>> texts,
                    const GenerationSettings& settings, const TextDone& done);

/// What `write` makes with the model, which computes in `dtype` meanwhile, its inputs rounded where that is
/// faster, and then as it did before. Empty where memory is short.
std::vector<std::string> texts_written_in(LanguageModel& model, DType dtype, const Stream& stream,
                                          const std::function<std::vector<std::string>()>& write);

}  // namespace hybrid_trainer
