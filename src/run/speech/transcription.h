#pragma once

#include "hybrid_trainer/models/language_model.h"
#include "src/data/audio/word_errors.h"
#include "src/data/examples/example_rows.h"
#include "src/run/speech/clips.h"
#include "src/run/speech/speech_tokens.h"

namespace hybrid_trainer {

/// Applies Whisper's rules for timestamps by setting the scores of invalid tokens to −∞. A text
/// begins with a timestamp. Later timestamps occur in pairs, except the last timestamp. Timestamps
/// never decrease. If all timestamps together are likelier than any text token, the next token must
/// be a timestamp. `scores` are the scores of the next token for the whole vocabulary. `written`
/// are the tokens so far without the prompt.
void apply_timestamp_rules(std::span<float> scores, std::span<const std::int32_t> written,
                           const SpeechTokens& tokens);

struct TranscriptionSettings {
  SpeechPrompt prompt{};  // completed from the folder's keys
  /// Beams of the search; if not set, the value of the folder's keys.
  std::optional<std::int64_t> beams{};
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
  std::vector<SpeechSegment> segments{};  // a single segment if there are no timestamps
  std::vector<std::int32_t> tokens{};     // generated tokens of all windows, without prompts
};

/// Transcribes a clip with a Whisper model, greedily or by beam search. If the clip is longer than
/// the model's window, enables timestamps and processes the clip in windows. Each window begins at
/// the last timestamp of the previous window. Source: Radford et al. 2022, section 3.8 and
/// appendix.
Transcript transcribe(LanguageModel& model, const Tokenizer& tokenizer, const SpeechTokens& tokens,
                      const EncodedClip& clip, const TranscriptionSettings& settings,
                      const Stream& stream);

/// Returns the text of a clip's row in the form used for training.
std::string reference_transcript(const ExampleRow& clip, const Tokenizer& tokenizer,
                                 const SpeechTokens& tokens);

/// Transcribes each clip in the language and task of its row, with timestamps if the row has
/// timestamps. See TranscriptionSettings for `beams`. Throws like read_wav.
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
