#include "hybrid_trainer/speech/heard_words.h"

#include "hybrid_trainer/speech/clip_features.h"
#include "hybrid_trainer/speech/transcription.h"

namespace hybrid_trainer {
namespace {

/// As the row's tokens begin.
SpeechPrompt prompt_of(const ExampleRow& clip, const SpeechTokens& tokens) {
  SpeechPrompt prompt;
  std::size_t next = 1;
  if (tokens.is_multilingual()) {
    prompt.language = tokens.code_of(clip.tokens.at(next++));
    prompt.translates = clip.tokens.at(next++) == tokens.translate;
  }
  prompt.timestamps = clip.tokens.at(next) != tokens.no_timestamps;
  return prompt;
}

}  // namespace

std::string said_in(const ExampleRow& clip, const Tokenizer& tokenizer,
                    const SpeechTokens& tokens) {
  const std::string text = tokens.text_of(tokenizer, clip.tokens);
  return text.starts_with(' ') ? text.substr(1) : text;
}

std::vector<std::string> heard_texts(LanguageModel& model, const Tokenizer& tokenizer,
                                     const SpeechTokens& tokens,
                                     const std::vector<ExampleRow>& clips, DType dtype,
                                     const Stream& stream, std::optional<std::int64_t> beams) {
  std::vector<std::string> texts;
  ClipFeatures features(model.config().encoder);
  for (const ExampleRow& clip : clips) {
    const TranscriptionSettings settings{
        .prompt = prompt_of(clip, tokens), .beams = beams, .dtype = dtype};
    texts.push_back(
        transcribe(model, tokenizer, tokens, features.of(*clip.clip), settings, stream).text);
  }
  return texts;
}

WordErrors heard_words(LanguageModel& model, const Tokenizer& tokenizer, const SpeechTokens& tokens,
                       const std::vector<ExampleRow>& clips, DType dtype, const Stream& stream) {
  WordErrors errors;
  const auto heard = heard_texts(model, tokenizer, tokens, clips, dtype, stream);
  for (std::size_t i = 0; i < clips.size(); ++i)
    errors += word_errors(said_in(clips[i], tokenizer, tokens), heard[i]);
  return errors;
}

}  // namespace hybrid_trainer
