#include "hybrid_trainer/speech/clip_examples.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

/// Languages whose words have no spaces between them, as in Whisper's tokenizer.
constexpr const char* kWithoutSpaces[] = {"zh", "ja", "th", "lo", "my", "yue"};

SpeechPrompt prompt_of(const ClipRow& clip, const SpeechTokens& tokens) {
  SpeechPrompt prompt;
  try {
    prompt = tokens.completed({.language = clip.language});
  } catch (const UsageError& error) {
    throw DataError(error.what());
  }
  if (tokens.is_multilingual() && prompt.language.empty())
    throw DataError("\"language\" is missing, and the model knows several; want a code, as \"en\"");
  prompt.timestamps = false;
  return prompt;
}

/// Places of a text that look like timestamps, "<|1.06|>".
std::vector<std::string_view> timestamps_in(std::string_view text) {
  std::vector<std::string_view> found;
  for (std::size_t at = text.find("<|"); at != text.npos; at = text.find("<|", at + 1)) {
    const std::size_t end = text.find_first_not_of("0123456789.", at + 2);
    if (end != text.npos && end > at + 2 && text.substr(end).starts_with("|>"))
      found.push_back(text.substr(at, end + 2 - at));
  }
  return found;
}

/// Whether a text has timestamps. Throws DataError if the model could not write them so.
bool has_timestamps(std::string_view text, const Tokenizer& tokenizer, const SpeechTokens& tokens) {
  const std::vector<std::string_view> times = timestamps_in(text);
  std::int32_t last = tokens.first_time();
  for (const std::string_view time : times) {
    const std::vector<std::int32_t> ids = tokenizer.encode(time, ControlText::kAsTokens);
    if (ids.size() != 1 || !tokens.is_time(ids.front()))
      throw DataError(concat("the model has no timestamp ", time,
                             "; want multiples of 0.02 s, as <|0.00|> to <|30.00|>"));
    if (ids.front() < last)
      throw DataError(concat("the timestamp ", time, " is before an earlier one"));
    last = ids.front();
  }
  if (times.empty()) return false;
  if (!text.starts_with(times.front()))
    throw DataError(concat("the timestamp ", times.front(),
                           " is not at the text's beginning, where "
                           "the first one belongs; add it there, or leave all out"));
  return true;
}

/// Prefix of Whisper's texts: a space that makes one token with the first word. It cannot write a
/// space alone at first.
bool wants_space(std::string_view text, const std::string& language, const Tokenizer& tokenizer) {
  if (std::ranges::count(kWithoutSpaces, language) > 0) return false;
  if (static_cast<unsigned char>(text.front()) < 0x80) return true;
  std::vector<std::int32_t> ids;
  tokenizer.append_tokens(concat(" ", text), ids, TextStart::kContinuation);
  return tokenizer.token_bytes(ids.front()) != " ";
}

void append_text(const std::string& given, const SpeechPrompt& prompt, ControlText control,
                 const Tokenizer& tokenizer, const SpeechTokens& tokens,
                 std::vector<std::int32_t>& to) {
  std::string text = given.substr(given.find_first_not_of(" \t\r\n"));
  if (!prompt.timestamps && wants_space(text, prompt.language, tokenizer)) text = " " + text;
  const std::size_t begun = to.size();
  tokenizer.append_tokens(text, to, TextStart::kContinuation, control);
  for (const std::int32_t id : std::span(to).subspan(begun))
    if (id >= tokens.end && id < tokens.first_time())
      throw DataError(concat("\"text\" spells the special token ", tokenizer.token_bytes(id),
                             "; write what is said alone, and the language under \"language\""));
}

}  // namespace

ExampleRow clip_example(const ClipRow& clip, const ExampleFormat& format,
                        const SpeechTokens& tokens) {
  const Tokenizer& tokenizer = format.tokenizer;
  const std::int64_t longest = format.longest;
  SpeechPrompt prompt = prompt_of(clip, tokens);
  prompt.timestamps =
      has_timestamps(clip.text.substr(clip.text.find_first_not_of(" \t\r\n")), tokenizer, tokens);
  ExampleRow row{.file = clip.file, .line = clip.line, .tokens = tokens.prompt(prompt)};
  append_text(clip.text, prompt, format.control, tokenizer, tokens, row.tokens);
  row.tokens.push_back(tokens.end);
  const std::int64_t count = std::ssize(row.tokens);
  if (count > longest) {
    row.left_out = count - longest;
    row.tokens.resize(static_cast<std::size_t>(longest));
  }
  row.learnt.assign(row.tokens.size(), true);
  row.learnt.front() = false;
  row.end_token = tokens.end;
  row.clip = std::make_shared<const FilePart>(clip.sound);
  return row;
}

ExampleRows read_clip_examples(const std::filesystem::path& path, const ExampleFormat& format,
                               double longest_seconds, const SpeechTokens& tokens) {
  const ClipRows read = read_clip_rows(path, {.columns = format.columns,
                                              .called = format.called,
                                              .longest_seconds = longest_seconds,
                                              .split = format.split});
  ExampleRows examples;
  for (const ClipRows::File& file : read.files) examples.files.push_back({file.path, file.form});
  for (const auto& [line, reason, file] : read.refused)
    examples.refused.push_back({line, reason, file});
  for (const ClipRow& clip : read.rows) {
    try {
      examples.rows.push_back(clip_example(clip, format, tokens));
      ++examples.files[clip.file].shapes[RowShape::kClip];
    } catch (const DataError& error) {
      examples.refused.push_back({clip.line, error.what(), clip.file});
    }
  }
  return examples;
}

}  // namespace hybrid_trainer
