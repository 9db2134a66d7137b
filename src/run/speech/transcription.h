#pragma once

#include "hybrid_trainer/models/language_model.h"
#include "src/data/audio/word_errors.h"
#include "src/data/examples/example_rows.h"
#include "src/run/speech/clips.h"
#include "src/run/speech/speech_tokens.h"

namespace hybrid_trainer {

/// Applies Whisper's rules for timestamps by setting the scores of invalid tokens to −∞. A text
/// begins with a timestamp. Later timestamps come in pairs, except the last. They never decrease.
/// If all timestamps together are likelier than any text token, the next token must be a timestamp.
/// `scores`: of the next token, for the whole vocabulary. `written`: tokens so far without prompt.
void apply_timestamp_rules(std::span<float> scores, std::span<const std::int32_t> written,
                           const SpeechTokens& tokens);

struct TranscriptionSettings {
  SpeechPrompt prompt{};                // completed from the folder's keys
  std::optional<std::int64_t> beams{};  // beams of the search; default: the keys' value
  DType dtype = DType::kF32;
};

/// Transcript of a time range, in seconds from the beginning of the clip.
struct SpeechSegment {
  double begin = 0, end = 0;
  std::string text;
};

struct Transcript {
  std::string language{};  // language code; empty for a monolingual model
  std::string text{};
  std::vector<SpeechSegment> segments{};  // without timestamps, one for the whole clip
  std::vector<std::int32_t> tokens{};     // generated tokens of all windows, without prompts
};

/// Transcribes a clip with a Whisper model, greedily or by beam search. A clip longer than the
/// model's window is processed in windows, each of which begins at the last timestamp of the
/// previous one; this enables timestamps. Source: Radford et al. 2022, section 3.8 and appendix.
Transcript transcribe(LanguageModel& model, const Tokenizer& tokenizer, const SpeechTokens& tokens,
                      const EncodedClip& clip, const TranscriptionSettings& settings,
                      const Stream& stream);

/// Returns the text of a clip's row in the form used for training.
std::string reference_transcript(const ExampleRow& clip, const Tokenizer& tokenizer,
                                 const SpeechTokens& tokens);

/// Transcribes each clip in the language and task of its row, with timestamps if the row has some.
/// `beams`: see TranscriptionSettings. Throws as read_wav.
std::vector<std::string> transcribe_texts(LanguageModel& model, const Tokenizer& tokenizer,
                                          const SpeechTokens& tokens,
                                          const std::vector<ExampleRow>& clips, DType dtype,
                                          const Stream& stream,
                                          std::optional<std::int64_t> beams = {});

/// Returns the word errors of a model's transcripts of clips. Throws as transcribe_texts.
WordErrors transcription_errors(LanguageModel& model, const Tokenizer& tokenizer,
                                const SpeechTokens& tokens, const std::vector<ExampleRow>& clips,
                                DType dtype, const Stream& stream);

}  // namespace hybrid_trainer
