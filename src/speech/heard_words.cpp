#include "hybrid_trainer/speech/heard_words.h"

#include <algorithm>
#include <iterator>

#include "hybrid_trainer/speech/clip_features.h"
#include "hybrid_trainer/speech/transcription.h"

namespace hybrid_trainer {
namespace {

std::string language_of(const ExampleRow& clip, const SpeechTokens& tokens) {
  for (const auto& [code, id] : tokens.languages)
    if (id == clip.tokens.at(1)) return code;
  return "";
}

}  // namespace

std::string said_in(const ExampleRow& clip, const Tokenizer& tokenizer,
                    const SpeechTokens& tokens) {
  std::vector<std::int32_t> words;
  std::ranges::copy_if(clip.tokens, std::back_inserter(words),
                       [&](std::int32_t id) { return id < tokens.end; });
  const std::string text = tokenizer.decode(words);
  return text.starts_with(' ') ? text.substr(1) : text;
}

std::vector<std::string> heard_texts(LanguageModel& model, const Tokenizer& tokenizer,
                                     const SpeechTokens& tokens,
                                     const std::vector<ExampleRow>& clips, DType dtype,
                                     const Stream& stream) {
  std::vector<std::string> texts;
  ClipFeatures features(model.config().encoder);
  for (const ExampleRow& clip : clips) {
    const TranscriptionSettings settings{.language = language_of(clip, tokens), .dtype = dtype};
    texts.push_back(
        transcribe(model, tokenizer, tokens, features.of(clip.clip), settings, stream).text);
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
