#include "src/run/speech/speech_tokens.h"

#include <algorithm>
#include <iterator>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/generation/text_generation.h"
#include "src/data/examples/example_rows.h"

namespace hybrid_trainer {

namespace {

constexpr std::int32_t kMaxTimes = 1501;  // 0.00 to 30.00 s

/// Language codes and names, also alternative ones, as in transformers' Whisper tokenizer.
constexpr const char* kLanguageNames =
    "en english zh chinese de german es spanish ru russian ko korean fr french ja japanese pt "
    "portuguese tr turkish pl polish ca catalan nl dutch ar arabic sv swedish it italian id "
    "indonesian hi hindi fi finnish vi vietnamese he hebrew uk ukrainian el greek ms malay cs "
    "czech ro romanian da danish hu hungarian ta tamil no norwegian th thai ur urdu hr croatian bg "
    "bulgarian lt lithuanian la latin mi maori ml malayalam cy welsh sk slovak te telugu fa "
    "persian lv latvian bn bengali sr serbian az azerbaijani sl slovenian kn kannada et estonian "
    "mk macedonian br breton eu basque is icelandic hy armenian ne nepali mn mongolian bs bosnian "
    "kk kazakh sq albanian sw swahili gl galician mr marathi pa punjabi si sinhala km khmer sn "
    "shona yo yoruba so somali af afrikaans oc occitan ka georgian be belarusian tg tajik sd "
    "sindhi gu gujarati am amharic yi yiddish lo lao uz uzbek fo faroese ht haitian_creole ps "
    "pashto tk turkmen nn nynorsk mt maltese sa sanskrit lb luxembourgish my myanmar bo tibetan tl "
    "tagalog mg malagasy as assamese tt tatar haw hawaiian ln lingala ha hausa ba bashkir jw "
    "javanese su sundanese yue cantonese my burmese ca valencian nl flemish ht haitian lb "
    "letzeburgesch ps pushto pa panjabi ro moldavian ro moldovan si sinhalese es castilian zh "
    "mandarin";

const std::map<std::string, std::string>& codes_by_name() {
  static const std::map<std::string, std::string> codes = [] {
    std::map<std::string, std::string> read;
    std::istringstream in(kLanguageNames);
    for (std::string code, name; in >> code >> name;) {
      std::ranges::replace(name, '_', ' ');
      read[name] = code;
    }
    return read;
  }();
  return codes;
}

std::optional<std::int32_t> token_of(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text, ControlText::kAsTokens);
  return ids.size() == 1 ? std::optional(ids.front()) : std::nullopt;
}

std::int32_t wanted_token(const Tokenizer& tokenizer, const std::string& text) {
  const auto id = token_of(tokenizer, text);
  if (!id)
    throw DataError(concat("the tokenizer has no token ", text,
                           ", so it is not the tokenizer of a Whisper model; use tokenizer.json "
                           "from the model's folder"));
  return *id;
}

/// Returns "en" for "<|en|>", or "" if the token is not a language.
std::string language_code(std::string_view token) {
  if (!token.starts_with("<|") || !token.ends_with("|>")) return "";
  const std::string code(token.substr(2, token.size() - 4));
  const bool is_code = code.size() >= 2 && code.size() <= 3 &&
                       std::ranges::all_of(code, [](char c) { return c >= 'a' && c <= 'z'; });
  return is_code ? code : "";
}

/// Reads the languages from lang_to_id, or else from the tokenizer.
void read_languages(const Tokenizer& tokenizer, SpeechTokens& tokens) {
  for (const auto& [token, id] : tokens.keys.speech.languages) {
    const bool is_one = token.starts_with("<|") && token.ends_with("|>") && token.size() > 4;
    if (!is_one || id >= tokenizer.vocabulary_size())
      throw DataError(concat(tokens.keys.file.string(), ": lang_to_id: got ", token, " ", id,
                             R"(, want tokens of the tokenizer, such as "<|en|>")"));
    tokens.languages.emplace_back(token.substr(2, token.size() - 4), id);
  }
  if (!tokens.languages.empty()) return;
  for (std::int32_t id = tokens.start + 1; id < tokenizer.vocabulary_size(); ++id) {
    const std::string code = language_code(tokenizer.token_bytes(id));
    if (code.empty()) return;
    tokens.languages.emplace_back(code, id);
  }
}

/// Returns whether the token is a timestamp, "<|1.06|>".
bool is_timestamp(std::string_view token) {
  return token.starts_with("<|") && token.ends_with("|>") && token.find('.') != token.npos &&
         token.find_first_not_of("0123456789.", 2) == token.size() - 2;
}

/// Finds the last timestamp and the added words. Timestamps are in the tokenizer or follow its last
/// token. Added words are tokens from `end` on that are neither timestamps nor special tokens.
void read_times_and_words(const Tokenizer& tokenizer, SpeechTokens& tokens) {
  const auto count = static_cast<std::int32_t>(tokenizer.vocabulary_size());
  tokens.times_end = tokens.first_time();
  while (tokens.times_end < count && is_timestamp(tokenizer.token_bytes(tokens.times_end)))
    ++tokens.times_end;
  if (tokens.first_time() >= count) tokens.times_end = tokens.first_time() + kMaxTimes;
  for (std::int32_t id = tokens.end; id < count; ++id)
    if (!tokens.is_time(id) && !is_special_token(tokenizer, id)) tokens.added_words.push_back(id);
}

/// Reads the default language and task. If both are missing, takes them from the forced tokens.
void read_usual(SpeechTokens& tokens) {
  const GenerationKeys::Speech& speech = tokens.keys.speech;
  const auto refuse = [&](const std::string& problem) {
    throw DataError(concat(tokens.keys.file.string(), ": ", problem));
  };
  tokens.usual.timestamps = speech.timestamps;
  if (!tokens.is_multilingual()) return;
  if (!speech.task.empty() && speech.task != "transcribe" && speech.task != "translate")
    refuse(choice_problem("task", speech.task, {"transcribe", "translate"}));
  tokens.usual.translates = speech.task == "translate";
  try {
    if (!speech.language.empty()) tokens.language(speech.language);
  } catch (const UsageError& error) {
    refuse(error.what());
  }
  tokens.usual.language = speech.language;
  if (!speech.task.empty() || !speech.language.empty()) return;
  tokens.is_usual_forced = !speech.forced.empty();
  for (const auto& id : speech.forced) {
    if (!id || *id == tokens.transcribe || *id == tokens.no_timestamps) continue;
    const std::string code = tokens.code_of(*id);
    if (code.empty() && *id != tokens.translate)
      refuse(concat("forced_decoder_ids: got the token ", *id,
                    ", want the token of a language or a task, or <|notimestamps|>"));
    if (*id == tokens.translate)
      tokens.usual.translates = true;
    else
      tokens.usual.language = code;
  }
}

}  // namespace

bool SpeechTokens::is_word(std::int32_t id) const {
  return id < end || std::ranges::binary_search(added_words, id);
}

std::int32_t SpeechTokens::language(const std::string& language) const {
  std::string code = language;
  std::ranges::transform(code, code.begin(), [](unsigned char c) { return std::tolower(c); });
  if (code.starts_with("<|") && code.ends_with("|>")) code = code.substr(2, code.size() - 4);
  const auto named = codes_by_name().find(code);
  std::vector<std::string> known;
  for (const auto& [one, id] : languages) {
    if (one == code || (named != codes_by_name().end() && one == named->second)) return id;
    known.push_back(one);
  }
  throw UsageError(choice_problem("language", language, known));
}

std::string SpeechTokens::code_of(std::int32_t id) const {
  for (const auto& [code, of_language] : languages)
    if (of_language == id) return code;
  return "";
}

SpeechPrompt SpeechTokens::completed(SpeechPrompt asked) const {
  asked.timestamps = asked.timestamps || usual.timestamps;
  if (is_multilingual()) {
    const bool overrides = is_usual_forced && !asked.language.empty();
    asked.translates = asked.translates || (usual.translates && !overrides);
    if (asked.language.empty()) asked.language = usual.language;
    if (!asked.language.empty()) asked.language = code_of(language(asked.language));
    return asked;
  }
  const SpeechTokens english{.languages = {{"en", 0}}};
  if (asked.translates)
    throw UsageError("the model supports one language only, so it cannot translate");
  if (!asked.language.empty()) english.language(asked.language);
  return asked;
}

std::vector<std::int32_t> SpeechTokens::prompt(const SpeechPrompt& asked) const {
  std::vector<std::int32_t> ids{start};
  if (is_multilingual()) {
    ids.push_back(language(asked.language));
    ids.push_back(asked.translates ? translate : transcribe);
  }
  if (!asked.timestamps) ids.push_back(no_timestamps);
  return ids;
}

std::string SpeechTokens::text_of(const Tokenizer& tokenizer,
                                  std::span<const std::int32_t> ids) const {
  std::vector<std::int32_t> words;
  std::ranges::copy_if(ids, std::back_inserter(words),
                       [&](std::int32_t id) { return is_word(id); });
  Utf8Assembler whole;
  const std::string text = whole.add(tokenizer.decode(words));
  return text + whole.rest();
}

SpeechTokens read_speech_tokens(const Tokenizer& tokenizer, const GenerationKeys& keys) {
  SpeechTokens tokens{.start = wanted_token(tokenizer, "<|startoftranscript|>"),
                      .end = wanted_token(tokenizer, "<|endoftext|>"),
                      .no_timestamps = wanted_token(tokenizer, "<|notimestamps|>"),
                      .latest_first_time = keys.speech.latest_first_time,
                      .keys = keys};
  read_times_and_words(tokenizer, tokens);
  read_languages(tokenizer, tokens);
  if (keys.speech.is_multilingual.value_or(tokens.languages.size() > 1)) {
    tokens.transcribe = wanted_token(tokenizer, "<|transcribe|>");
    tokens.translate = wanted_token(tokenizer, "<|translate|>");
  } else {
    tokens.languages.clear();
  }
  read_usual(tokens);
  return tokens;
}

}  // namespace hybrid_trainer
