#pragma once

#include <limits>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/model_files/hugging_face/generation_config.h"

namespace hybrid_trainer {

/// Language, task and timestamps of a transcription.
struct SpeechPrompt {
  std::string language{};  // a code, as "en", a name, as "german", or a token; of several languages
  bool translates = false;  // into English
  bool timestamps = false;
};

/// The special tokens by which a Whisper model is told what to write, and how its folder says that it
/// writes.
struct SpeechTokens {
  std::int32_t start = 0;          // <|startoftranscript|>
  std::int32_t end = 0;            // <|endoftext|>
  std::int32_t no_timestamps = 0;  // <|notimestamps|>; that of 0.00 s is the next
  std::int32_t times_end = std::numeric_limits<std::int32_t>::max();  // one past the last timestamp
  /// Of a model of several languages: codes, as "en", with their tokens, and what to do.
  std::vector<std::pair<std::string, std::int32_t>> languages{};
  std::int32_t transcribe = 0, translate = 0;
  std::vector<std::int32_t> added_words{};          // from `end` on, in increasing order
  std::optional<std::int32_t> latest_first_time{};  // of the first timestamp, in steps of 20 ms
  GenerationKeys keys{};
  /// What the folder's keys ask for, and whether by forced_decoder_ids, which a language that is given
  /// overrides as a whole.
  SpeechPrompt usual{};
  bool is_usual_forced = false;

  bool is_multilingual() const { return !languages.empty(); }
  std::int32_t first_time() const { return no_timestamps + 1; }
  bool is_time(std::int32_t id) const { return id >= first_time() && id < times_end; }
  /// Whether the token is text, and not a timestamp or special.
  bool is_word(std::int32_t id) const;
  /// The token of a language. Throws UsageError, which names some, for another one.
  std::int32_t language(const std::string& language) const;
  /// The code of a language's token; empty of another token.
  std::string code_of(std::int32_t id) const;
  /// `asked`, completed from the folder's keys, with a code as language. An empty one is left for the model
  /// to tell. Throws UsageError if a model of one language is asked for another one, or to translate.
  SpeechPrompt completed(SpeechPrompt asked) const;
  /// The tokens that a text begins with: start, of several languages that and the task, and no_timestamps
  /// unless it has timestamps.
  std::vector<std::int32_t> prompt(const SpeechPrompt& asked) const;
  /// The words among the tokens, as UTF-8.
  std::string text_of(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) const;
};

/// Reads them from a model's tokenizer. Throws DataError if the tokenizer has no such tokens, or the keys
/// name a language or a task that is none of the model's.
SpeechTokens read_speech_tokens(const Tokenizer& tokenizer, const GenerationKeys& keys);

}  // namespace hybrid_trainer
