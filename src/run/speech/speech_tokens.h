#pragma once

#include <limits>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/model_files/hugging_face/generation_config.h"

namespace hybrid_trainer {

/// Language, task and timestamps of a transcription.
struct SpeechPrompt {
  std::string language{};   // code ("en"), name ("german") or token, for a multilingual model
  bool translates = false;  // whether to translate to English
  bool timestamps = false;
};

/// Special tokens that control a Whisper model, and the generation settings of its folder.
struct SpeechTokens {
  std::int32_t start = 0;          // <|startoftranscript|>
  std::int32_t end = 0;            // <|endoftext|>
  std::int32_t no_timestamps = 0;  // <|notimestamps|>; the timestamp 0.00 s is the next id
  std::int32_t times_end = std::numeric_limits<std::int32_t>::max();  // one past the last timestamp
  /// Language codes such as "en" with their tokens, for a multilingual model.
  std::vector<std::pair<std::string, std::int32_t>> languages{};
  std::int32_t transcribe = 0, translate = 0;
  std::vector<std::int32_t> added_words{};  // ids from `end` on, ascending
  /// Maximum of the first timestamp, in steps of 20 ms.
  std::optional<std::int32_t> latest_first_time{};
  GenerationKeys keys{};
  /// Defaults of the folder. A given language replaces the tokens of forced_decoder_ids.
  SpeechPrompt usual{};
  bool is_usual_forced = false;

  bool is_multilingual() const { return !languages.empty(); }
  std::int32_t first_time() const { return no_timestamps + 1; }
  bool is_time(std::int32_t id) const { return id >= first_time() && id < times_end; }
  bool is_word(std::int32_t id) const;
  /// Returns the token of a language. Throws UsageError listing some languages if it is unknown.
  std::int32_t language(const std::string& language) const;
  std::string code_of(std::int32_t id) const;
  /// Completes `asked` from the folder's keys and converts its language to a code. If it has no
  /// language, the model detects the language. Throws UsageError if `asked` requires a monolingual
  /// model to use a different language or to translate.
  SpeechPrompt completed(SpeechPrompt asked) const;
  /// Returns the initial tokens of a text: start, language and task for a multilingual model, and
  /// no_timestamps unless `asked` enables timestamps.
  std::vector<std::int32_t> prompt(const SpeechPrompt& asked) const;
  /// Decodes the text tokens among `ids` to UTF-8.
  std::string text_of(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) const;
};

/// Reads the special tokens. Throws DataError if one is missing, or if the tokenizer lacks the
/// language or task in `keys`.
SpeechTokens read_speech_tokens(const Tokenizer& tokenizer, const GenerationKeys& keys);

}  // namespace hybrid_trainer
