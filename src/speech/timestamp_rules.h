#pragma once

#include <span>

#include "hybrid_trainer/speech/speech_tokens.h"

namespace hybrid_trainer {

/// Lets a Whisper model write timestamps as it was trained to: the text begins with one, they come in
/// pairs but at the end, none is before an earlier one, and one comes where all of them together are
/// likelier than any token of text. scores: of the next token, all of the vocabulary; what must not
/// follow `written` (without the prompt) becomes −∞.
void apply_timestamp_rules(std::span<float> scores, std::span<const std::int32_t> written,
                           const SpeechTokens& tokens);

}  // namespace hybrid_trainer
