#include "hybrid_trainer/generation/text_generation.h"

#include <algorithm>

#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/utf8.h"
#include "hybrid_trainer/generation/stop_strings.h"

namespace hybrid_trainer {
namespace {

void check_vocabulary(std::int64_t vocabulary, const Tokenizer& tokenizer,
                      std::span<const std::int32_t> text) {
  if (tokenizer.least_table() > vocabulary) {
    throw DataError(concat("the tokenizer has ", tokenizer.vocabulary_size(),
                           " tokens and the model ", vocabulary,
                           "; give the tokenizer that the model was trained with"));
  }
  for (const std::int32_t token : text) {
    if (token >= vocabulary)
      throw DataError(concat("the text has the token ", tokenizer.token_bytes(token),
                             ", which is none of the model's ", vocabulary));
  }
}

/// Passes on the text of tokens, in whole characters, up to where it ends.
class TextWriter {
 public:
  TextWriter(const Tokenizer& tokenizer, const GenerationSettings& settings,
             const std::function<void(std::string_view)>& write)
      : tokenizer_(tokenizer),
        end_tokens_(settings.end_tokens),
        stop_(settings.stop),
        write_(write) {}
  /// False where the token ends the text and has none itself.
  bool add(std::int32_t token) {
    if (token == tokenizer_.end_of_text() || std::ranges::count(end_tokens_, token) > 0)
      return false;
    write_some(stop_.add(assembler_.add(tokenizer_.token_bytes(token))));
    return true;
  }
  /// Whether a stop string came.
  bool ended() const { return stop_.reached(); }
  void finish() { write_some(stop_.rest()); }

 private:
  void write_some(const std::string& piece) const {
    if (!piece.empty()) write_(piece);
  }
  const Tokenizer& tokenizer_;
  const std::vector<std::int32_t>& end_tokens_;
  Utf8Assembler assembler_;
  StopStrings stop_;
  const std::function<void(std::string_view)>& write_;
};

/// Tokens that are seen together.
struct Round {
  std::vector<std::int32_t> drafts{};
  std::int64_t taken = 0;
  double seconds = 0;

  /// Whether the token is the next draft, so that the logits after it are there.
  bool takes(std::int32_t token) {
    const auto at = static_cast<std::size_t>(taken);
    if (at >= drafts.size() || drafts[at] != token) return false;
    ++taken;
    return true;
  }
  void see(CachedDecoder& decoder, std::vector<std::int32_t> text) {
    text.insert(text.end(), drafts.begin(), drafts.end());
    const Clock::time_point began = Clock::now();
    decoder.see(text, std::ssize(drafts));
    seconds = seconds_since(began);
    taken = 0;
  }
};

}  // namespace

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

GenerationResult continue_text(CachedDecoder& decoder, DraftModel* draft,
                               const Tokenizer& tokenizer, std::vector<std::int32_t> text,
                               const GenerationSettings& settings,
                               const std::function<void(std::string_view)>& write) {
  check_vocabulary(decoder.vocabulary(), tokenizer, text);
  GenerationResult result{.prompt_tokens = std::ssize(text)};
  if (settings.tokens == 0) return result;
  TextWriter writer(tokenizer, settings, write);
  Clock::time_point began = Clock::now();
  decoder.see(text);
  result.prompt_seconds = seconds_since(began);
  began = Clock::now();
  Round round;
  for (const auto words =
           static_cast<std::size_t>(std::min(tokenizer.vocabulary_size(), decoder.vocabulary()));
       ;) {
    const auto position = static_cast<std::uint64_t>(result.tokens);
    const std::int32_t token =
        sample_token(decoder.logits(round.taken).first(words), settings.sampling, position, text);
    if (!writer.add(token)) break;
    ++result.tokens;
    text.push_back(token);
    if (writer.ended() || result.tokens == settings.tokens) break;
    if (round.takes(token)) {
      ++result.taken;
      continue;
    }
    if (draft != nullptr) {
      draft->learn(std::ssize(round.drafts), round.taken, round.seconds);
      const std::int64_t wanted = settings.tokens - result.tokens - 1;
      round.drafts = draft->draft(text, words, settings.sampling, position + 1,
                                  std::min(wanted, decoder.room_for_drafts(std::ssize(text))));
    }
    result.drafted += std::ssize(round.drafts);
    round.see(decoder, text);
  }
  writer.finish();
  result.seconds = seconds_since(began);
  return result;
}

GenerationResult generate_text(LanguageModel& model, const Tokenizer& tokenizer,
                               const std::string& prompt, const GenerationSettings& settings,
                               const std::function<void(std::string_view)>& write,
                               const Stream& stream) {
  check(settings);
  CachedDecoder decoder(model, DType::kF32, stream);
  GenerationResult result =
      continue_text(decoder, nullptr, tokenizer, prompt_tokens(tokenizer, prompt), settings, write);
  if (prompt.empty()) result.prompt_tokens = 0;
  return result;
}

}  // namespace hybrid_trainer
