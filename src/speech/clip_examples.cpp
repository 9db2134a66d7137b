#include "hybrid_trainer/speech/clip_examples.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

std::vector<std::int32_t> prompt_of(const ClipRow& clip, const SpeechTokens& tokens) {
  if (tokens.is_multilingual() && clip.language.empty())
    throw DataError("\"language\" is missing, and the model knows several; want a code, as \"en\"");
  try {
    return tokens.prompt(clip.language, false, false);
  } catch (const UsageError& error) {
    throw DataError(error.what());
  }
}

}  // namespace

ExampleRow clip_example(const ClipRow& clip, const Tokenizer& tokenizer, const SpeechTokens& tokens,
                        std::int64_t longest) {
  ExampleRow row{.file = clip.file, .line = clip.line, .tokens = prompt_of(clip, tokens)};
  tokenizer.append_tokens(clip.text.starts_with(' ') ? clip.text : " " + clip.text, row.tokens,
                          TextStart::kContinuation);
  row.tokens.push_back(tokens.end);
  const std::int64_t count = std::ssize(row.tokens);
  if (count > longest) {
    row.left_out = count - longest;
    row.tokens.resize(static_cast<std::size_t>(longest));
  }
  row.learnt.assign(row.tokens.size(), true);
  row.learnt.front() = false;
  row.end_token = tokens.end;
  row.clip = clip.path;
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
      examples.rows.push_back(clip_example(clip, format.tokenizer, tokens, format.longest));
      ++examples.files[clip.file].shapes[RowShape::kClip];
    } catch (const DataError& error) {
      examples.refused.push_back({clip.line, error.what(), clip.file});
    }
  }
  return examples;
}

}  // namespace hybrid_trainer
