#pragma once

#include "hybrid_trainer/models/language_model.h"
#include "src/data/audio/word_errors.h"
#include "src/data/examples/example_rows.h"
#include "src/run/speech/clips.h"
#include "src/run/speech/speech_tokens.h"

namespace hybrid_trainer {

/// Lets a Whisper model write timestamps as it was trained to. The text begins with one. Those behind it
/// come in pairs, but for the last. None is before an earlier one. Where all of them together are likelier
/// than any token of text, one comes. scores: of the next token, all of the vocabulary. What must not
/// follow `written`, which is without the prompt, becomes −∞.
void apply_timestamp_rules(std::span<float> scores, std::span<const std::int32_t> written,
                           const SpeechTokens& tokens);

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
