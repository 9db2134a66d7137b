#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/data/tokenizer.h"

namespace hybrid_trainer {

/// The special tokens by which a Whisper model is told what to write, and what it must not write.
struct SpeechTokens {
  std::int32_t start = 0;          // <|startoftranscript|>
  std::int32_t end = 0;            // <|endoftext|>
  std::int32_t no_timestamps = 0;  // <|notimestamps|>; that of 0.00 s is the next
  /// Of a model of several languages: codes, as "en", with their tokens, and what to do.
  std::vector<std::pair<std::string, std::int32_t>> languages{};
  std::int32_t transcribe = 0, translate = 0;
  std::vector<std::int32_t> suppressed{};           // never written
  std::vector<std::int32_t> suppressed_at_first{};  // not as the first token
  std::optional<std::int32_t> latest_first_time{};  // of the first timestamp, in steps of 20 ms

  bool is_multilingual() const { return !languages.empty(); }
  std::int32_t first_time() const { return no_timestamps + 1; }
  /// The token of a language. Throws UsageError, which names some, for another code.
  std::int32_t language(const std::string& code) const;
  /// What a text begins with: start, language and task where there are several, and no_timestamps
  /// unless it is to have timestamps. `code`: of the language, where there are several.
  std::vector<std::int32_t> prompt(const std::string& code, bool translates, bool timestamps) const;
};

/// Of a model's folder: its tokenizer, and the lists of its generation_config.json, if it has one. Throws
/// DataError where the tokenizer has no such tokens.
SpeechTokens read_speech_tokens(const Tokenizer& tokenizer, const std::filesystem::path& folder);

}  // namespace hybrid_trainer
