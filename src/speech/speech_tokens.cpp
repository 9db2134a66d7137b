#include "hybrid_trainer/speech/speech_tokens.h"

#include <algorithm>
#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/files/strict_json.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

std::optional<std::int32_t> token_of(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text, ControlText::kAsTokens);
  return ids.size() == 1 ? std::optional(ids.front()) : std::nullopt;
}

std::int32_t wanted_token(const Tokenizer& tokenizer, const std::string& text) {
  const auto id = token_of(tokenizer, text);
  if (!id)
    throw DataError(concat("the tokenizer has no token ", text,
                           ", so it is no tokenizer of a Whisper model; take tokenizer.json from "
                           "the model's folder"));
  return *id;
}

/// "<|en|>" is "en"; empty where it is no language's.
std::string language_code(std::string_view token) {
  if (!token.starts_with("<|") || !token.ends_with("|>")) return "";
  const std::string code(token.substr(2, token.size() - 4));
  const bool is_code = code.size() >= 2 && code.size() <= 3 &&
                       std::ranges::all_of(code, [](char c) { return c >= 'a' && c <= 'z'; });
  return is_code ? code : "";
}

void read_languages(const Tokenizer& tokenizer, SpeechTokens& tokens) {
  for (std::int32_t id = tokens.start + 1; id < tokenizer.vocabulary_size(); ++id) {
    const std::string code = language_code(tokenizer.token_bytes(id));
    if (code.empty()) return;
    tokens.languages.emplace_back(code, id);
  }
}

std::vector<std::int32_t> ids_in(const json::object& config, const char* key) {
  std::vector<std::int32_t> ids;
  const json::value* const value = config.if_contains(key);
  if (value == nullptr || !value->is_array()) return ids;
  for (const json::value& id : value->get_array())
    if (id.is_int64() && id.get_int64() >= 0)
      ids.push_back(static_cast<std::int32_t>(id.get_int64()));
  return ids;
}

/// generation_config.json, or config.json, as transformers reads it where there is none.
json::object settings_in(const std::filesystem::path& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    if (!std::filesystem::exists(folder / name)) continue;
    json::value content = read_json((folder / name).string());
    if (content.is_object()) return std::move(content.get_object());
  }
  return {};
}

void read_lists(const json::object& settings, SpeechTokens& tokens) {
  tokens.suppressed = ids_in(settings, "suppress_tokens");
  tokens.suppressed_at_first = ids_in(settings, "begin_suppress_tokens");
  const json::value* const latest = settings.if_contains("max_initial_timestamp_index");
  if (latest != nullptr && latest->is_int64())
    tokens.latest_first_time = static_cast<std::int32_t>(latest->get_int64());
}

/// Whether the model is told of languages; without a word on it, where the tokenizer knows more than one.
bool is_multilingual(const json::object& settings, const SpeechTokens& tokens) {
  const json::value* const said = settings.if_contains("is_multilingual");
  return said != nullptr && said->is_bool() ? said->get_bool() : tokens.languages.size() > 1;
}

}  // namespace

std::int32_t SpeechTokens::language(const std::string& code) const {
  std::vector<std::string> codes;
  for (const auto& [known, id] : languages) {
    if (known == code) return id;
    codes.push_back(known);
  }
  throw UsageError(choice_problem("language", code, codes));
}

std::vector<std::int32_t> SpeechTokens::prompt(const std::string& code, bool translates,
                                               bool timestamps) const {
  std::vector<std::int32_t> ids{start};
  if (is_multilingual()) {
    ids.push_back(language(code));
    ids.push_back(translates ? translate : transcribe);
  }
  if (!timestamps) ids.push_back(no_timestamps);
  return ids;
}

SpeechTokens read_speech_tokens(const Tokenizer& tokenizer, const std::filesystem::path& folder) {
  SpeechTokens tokens{.start = wanted_token(tokenizer, "<|startoftranscript|>"),
                      .end = wanted_token(tokenizer, "<|endoftext|>"),
                      .no_timestamps = wanted_token(tokenizer, "<|notimestamps|>")};
  const json::object settings = settings_in(folder);
  read_lists(settings, tokens);
  read_languages(tokenizer, tokens);
  if (!is_multilingual(settings, tokens)) {
    tokens.languages.clear();
    return tokens;
  }
  tokens.transcribe = wanted_token(tokenizer, "<|transcribe|>");
  tokens.translate = wanted_token(tokenizer, "<|translate|>");
  return tokens;
}

}  // namespace hybrid_trainer
