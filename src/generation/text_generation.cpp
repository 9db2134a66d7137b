#include "hybrid_trainer/generation/text_generation.h"

#include <algorithm>

#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/utf8.h"
#include "hybrid_trainer/generation/stop_strings.h"

namespace hybrid_trainer {
namespace {

void check_vocabulary(const LanguageModel& model, const Tokenizer& tokenizer) {
  if (tokenizer.vocabulary_size() <= model.config().vocabulary) return;
  throw DataError(concat("the tokenizer has ", tokenizer.vocabulary_size(),
                         " tokens and the model ", model.config().vocabulary,
                         "; give the tokenizer that the model was trained with"));
}

std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<std::int32_t> ids = tokenizer.template_start();
  if (!prompt.empty()) tokenizer.append_tokens(prompt, ids);
  if (!ids.empty()) return ids;
  if (tokenizer.end_of_text()) return {*tokenizer.end_of_text()};
  try {
    return tokenizer.encode("\n");
  } catch (const DataError&) {  // a characters vocabulary without a newline
    return {0};
  }
}

}  // namespace

CachedDecoder::CachedDecoder(LanguageModel& model, const Stream& stream)
    : model_(model), stream_(stream), state_(model.make_decode_state(1, DType::kF32, stream)) {}

std::span<const float> CachedDecoder::logits_after(std::span<const std::int32_t> tokens) {
  require(!tokens.empty(), "CachedDecoder: no tokens");
  text_.insert(text_.end(), tokens.begin(), tokens.end());
  const std::int64_t context = model_.config().context;
  if (window() > context) {
    begin_ = static_cast<std::int64_t>(text_.size()) - std::max<std::int64_t>(1, context / 2);
    state_->restart();
  }
  // Only one token at a time can be added to the state; more restart the window.
  if (window() - state_->position() > 1) state_->restart();
  const auto first = text_.begin() + begin_ + state_->position();
  const Stream host(MemoryPool::create("host"));
  const Tensor fresh =
      Tensor::empty({1, text_.end() - first}, DType::kI32, MemoryKind::kData, host);
  std::copy(first, text_.end(), fresh.data<std::int32_t>());
  const Tensor tokens_there = wait_for_device(fresh, stream_);
  logits_ = wait_for_host(model_.next_logits(tokens_there, *state_, {.training = false}, stream_),
                          stream_);
  return {logits_.data<float>(), static_cast<std::size_t>(model_.config().vocabulary)};
}

std::string Utf8Assembler::add(std::string_view bytes) {
  static constexpr const char* kReplacement = "\xEF\xBF\xBD";
  held_ += bytes;
  std::string whole;
  std::size_t at = 0;
  while (at < held_.size()) {
    const auto [bytes, length] = utf8_prefix(held_, at);
    if (bytes < length && at + bytes == held_.size()) break;  // the rest is still to come
    whole += bytes == length ? held_.substr(at, length) : kReplacement;
    at += bytes;
  }
  held_.erase(0, at);
  return whole;
}

void check(const GenerationSettings& settings) {
  if (settings.tokens < 0)
    throw UsageError(concat("tokens: got ", settings.tokens, ", want 0 or more"));
  check(settings.sampling);
  StopStrings{settings.stop};
}

double GenerationResult::tokens_per_second() const {
  return tokens > 1 && seconds > 0 ? static_cast<double>(tokens - 1) / seconds : 0;
}

GenerationResult generate_text(LanguageModel& model, const Tokenizer& tokenizer,
                               const std::string& prompt, const GenerationSettings& settings,
                               const std::function<void(std::string_view)>& write,
                               const Stream& stream) {
  check(settings);
  check_vocabulary(model, tokenizer);
  std::vector<std::int32_t> text = prompt_tokens(tokenizer, prompt);
  GenerationResult result{.prompt_tokens =
                              prompt.empty() ? 0 : static_cast<std::int64_t>(text.size())};
  if (settings.tokens == 0) return result;

  CachedDecoder decoder(model, stream);
  Utf8Assembler assembler;
  StopStrings stop(settings.stop);
  const auto write_some = [&](const std::string& piece) {
    if (!piece.empty()) write(piece);
  };
  Clock::time_point began = Clock::now();
  const auto words = static_cast<std::size_t>(tokenizer.vocabulary_size());
  std::span<const float> logits = decoder.logits_after(text);
  result.prompt_seconds = seconds_since(began);
  began = Clock::now();
  while (true) {
    const std::int32_t token = sample_token(logits.first(words), settings.sampling,
                                            static_cast<std::uint64_t>(result.tokens), text);
    if (token == tokenizer.end_of_text()) break;
    ++result.tokens;
    text.push_back(token);
    write_some(stop.add(assembler.add(tokenizer.token_bytes(token))));
    if (stop.reached() || result.tokens == settings.tokens) break;
    logits = decoder.logits_after({&token, 1});
  }
  write_some(stop.rest());
  result.seconds = seconds_since(began);
  return result;
}

}  // namespace hybrid_trainer
