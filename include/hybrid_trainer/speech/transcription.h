#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/models/language_model.h"
#include "hybrid_trainer/speech/clip_features.h"
#include "hybrid_trainer/speech/speech_tokens.h"

namespace hybrid_trainer {

struct TranscriptionSettings {
  SpeechPrompt prompt{};                // completed from the folder's keys
  std::optional<std::int64_t> beams{};  // texts that the search goes on with; else as the keys say
  DType dtype = DType::kF32;
};

/// What is said between two moments, in seconds from the beginning of the clip.
struct SpeechSegment {
  double begin = 0, end = 0;
  std::string text;
};

struct Transcript {
  std::string language{};  // its code; empty of a model of one language
  std::string text{};
  std::vector<SpeechSegment> segments{};  // without timestamps one, of the whole clip
  std::vector<std::int32_t>
      tokens{};  // that were written, of all windows, without what they begin with
};

/// What a Whisper model hears in a clip: its likeliest tokens, one after the other, or with several beams
/// the likeliest text of a beam search. A clip that is longer than the model's window goes
/// through in windows, each of which begins where the last timestamp of the one before is; it then has
/// timestamps. Source: Radford et al. 2022, section 3.8 and appendix.
Transcript transcribe(LanguageModel& model, const Tokenizer& tokenizer, const SpeechTokens& tokens,
                      const HeardClip& clip, const TranscriptionSettings& settings,
                      const Stream& stream);

}  // namespace hybrid_trainer
