#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/audio/word_errors.h"
#include "hybrid_trainer/fine_tuning/example_rows.h"
#include "hybrid_trainer/models/language_model.h"
#include "hybrid_trainer/speech/speech_tokens.h"

namespace hybrid_trainer {

/// The words of a clip's row, as it was learnt.
std::string said_in(const ExampleRow& clip, const Tokenizer& tokenizer, const SpeechTokens& tokens);

/// Transcribes each clip in the language and task of its row, with timestamps if the row has some.
/// `beams`: see TranscriptionSettings. Throws what read_wav throws.
std::vector<std::string> heard_texts(LanguageModel& model, const Tokenizer& tokenizer,
                                     const SpeechTokens& tokens,
                                     const std::vector<ExampleRow>& clips, DType dtype,
                                     const Stream& stream, std::optional<std::int64_t> beams = {});

/// What a model gets wrong of the words of clips. Throws as heard_texts.
WordErrors heard_words(LanguageModel& model, const Tokenizer& tokenizer, const SpeechTokens& tokens,
                       const std::vector<ExampleRow>& clips, DType dtype, const Stream& stream);

}  // namespace hybrid_trainer
