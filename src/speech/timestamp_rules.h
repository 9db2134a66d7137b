#pragma once

#include <span>

#include "hybrid_trainer/speech/speech_tokens.h"

namespace hybrid_trainer {

/// Lets a Whisper model write timestamps as it was trained to. The text begins with one. Those behind it
/// come in pairs, but for the last. None is before an earlier one. Where all of them together are likelier
/// than any token of text, one comes. scores: of the next token, all of the vocabulary. What must not
/// follow `written`, which is without the prompt, becomes −∞.
void apply_timestamp_rules(std::span<float> scores, std::span<const std::int32_t> written,
                           const SpeechTokens& tokens);

}  // namespace hybrid_trainer
