#include "hybrid_trainer/generation/text_generation.h"

#include <algorithm>

#include "src/core/clock.h"
#include "src/files/text.h"
#include "src/generation/growing_text.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kMinPatience = 8, kMaxPatience = 1024, kFirst = 2, kMeasured = 5;
constexpr double kNew = 0.1;      // weight of new times in the moving averages
constexpr double kSlowest = 3;    // times longer than this multiple are ignored as noise
constexpr double kKept = 0.97;    // decay of earlier token counts per new token
constexpr double kTokens = 8;     // largest credit, in tokens without a draft
constexpr double kEarned = 0.02;  // credit earned, as a share of the time without drafts

void remember(double& average, double seconds) {
  average =
      average == 0 ? seconds : average + kNew * (std::min(seconds, kSlowest * average) - average);
}

/// Returns the expected tokens of a round with k drafts, each accepted with this probability.
double tokens_made(std::int64_t k, double share_taken) {
  double sum = 1, product = 1;
  for (std::int64_t i = 0; i < k; ++i) sum += product *= share_taken;
  return sum;
}

constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Round {
  std::vector<std::int32_t> drafts{};
  std::int64_t taken = 0;
  double seconds = 0;

  /// Takes the token if it is the next draft, whose logits exist already. Returns whether it is.
  bool takes(std::int32_t token) {
    const auto at = static_cast<std::size_t>(taken);
    if (at >= drafts.size() || drafts[at] != token) return false;
    ++taken;
    return true;
  }
  void see(CachedDecoder& decoder, std::vector<std::int32_t> text, std::int64_t pinned) {
    text.insert(text.end(), drafts.begin(), drafts.end());
    const Clock::time_point began = Clock::now();
    decoder.see(text, {.drafted = std::ssize(drafts), .pinned = pinned});
    seconds = seconds_since(began);
    taken = 0;
  }
};

}  // namespace

std::int64_t DraftLength::fastest() const {
  if (extra_ == 0) return kFirst;
  std::int64_t best = 0;
  double best_rate = 0;
  for (std::int64_t k = 0; k <= kLongest; ++k) {
    const double rate =
        tokens_made(k, taken_ / tried_) / (plain_ + static_cast<double>(k) * extra_);
    if (rate > best_rate) best = k, best_rate = rate;
  }
  return best;
}

std::int64_t DraftLength::next() {
  const std::int64_t length = fastest();
  if (credit_ <= 0) {
    ++idle_;
    return 0;
  }
  if (length > 0) {
    idle_ = 0, patience_ = kMinPatience;
    return length;
  }
  if (++idle_ < patience_) return 0;
  idle_ = 0, patience_ = std::min(2 * patience_, kMaxPatience);
  return 1;
}

void DraftLength::update_undrafted(double seconds) {
  if (std::ssize(first_) >= kMeasured) {
    remember(plain_, seconds);
    credit_ = std::min(kTokens * plain_, credit_ + kEarned * seconds);
    return;
  }
  first_.push_back(seconds);
  std::ranges::sort(first_);
  plain_ = first_[first_.size() / 2];
  if (std::ssize(first_) == kMeasured) credit_ = kTokens * plain_;
}

void DraftLength::update_acceptance(std::int64_t drafted, std::int64_t taken) {
  for (std::int64_t i = 0; i < std::min(drafted, taken + 1); ++i) {
    taken_ = kKept * taken_ + (i < taken ? 1 : 0);
    tried_ = kKept * tried_ + 1;
  }
}

void DraftLength::update(std::int64_t drafted, std::int64_t taken, double seconds) {
  if (drafted == 0) return update_undrafted(seconds);
  update_acceptance(drafted, taken);
  if (!has_drafted_) {
    has_drafted_ = true;
    return;
  }
  remember(extra_, std::max(seconds - plain_, 1e-3 * plain_) / static_cast<double>(drafted));
  if (taken == drafted) patience_ = 1;  // retry soon after a successful try
  credit_ = std::min(kTokens * plain_, credit_ + static_cast<double>(taken + 1) * plain_ - seconds);
}

std::vector<std::int32_t> DraftModel::draft(std::vector<std::int32_t> text, std::size_t words,
                                            const SamplingSettings& sampling,
                                            std::uint64_t position, std::int64_t most) {
  const std::int64_t length = std::min(fixed_length_ ? *fixed_length_ : length_.next(), most);
  const Clock::time_point began = Clock::now();
  const auto begin = std::ssize(text);
  for (std::int64_t i = 0; i < length; ++i) {
    decoder_.see(text);
    text.push_back(sample_token(decoder_.logits().first(words), sampling,
                                position + static_cast<std::uint64_t>(i), text));
  }
  seconds_ = seconds_since(began);
  return {text.begin() + begin, text.end()};
}

void DraftModel::update(std::int64_t drafted, std::int64_t taken, double seconds) {
  if (seconds > 0 && !fixed_length_) length_.update(drafted, taken, seconds_ + seconds);
}

void check_text(std::int64_t vocabulary, const Tokenizer& tokenizer,
                std::span<const std::int32_t> text) {
  if (tokenizer.min_table_rows() > vocabulary)
    throw DataError(concat("the tokenizer has ", tokenizer.vocabulary_size(),
                           " tokens, but the model has ", vocabulary,
                           "; give the tokenizer that the model was trained with"));
  for (const std::int32_t token : text) {
    if (token >= vocabulary)
      throw DataError(concat("the text contains the token ", tokenizer.token_bytes(token),
                             ", but the model has only tokens below ", vocabulary));
  }
}

std::string Utf8Assembler::rest() { return std::exchange(held_, {}).empty() ? "" : kReplacement; }

std::string Utf8Assembler::add(std::string_view bytes) {
  held_ += bytes;
  std::string whole;
  std::size_t at = 0;
  while (at < held_.size()) {
    const auto [bytes, length] = utf8_prefix(held_, at);
    if (bytes < length && at + bytes == held_.size()) break;  // incomplete
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

std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt,
                                        ControlText control) {
  const std::vector<std::int32_t> ids =
      prompt.empty() ? tokenizer.template_start() : tokenizer.encode_document(prompt, control);
  if (!ids.empty()) return ids;
  if (tokenizer.end_of_text()) return {*tokenizer.end_of_text()};
  try {
    return tokenizer.encode("\n");
  } catch (const DataError&) {  // a character vocabulary without a newline
    return {0};
  }
}

GenerationResult continue_text(CachedDecoder& decoder, DraftModel* draft,
                               const Tokenizer& tokenizer, std::vector<std::int32_t> text,
                               const GenerationSettings& settings,
                               const std::function<void(std::string_view)>& write) {
  check_text(decoder.vocabulary(), tokenizer, text);
  const ContextWindow window(decoder.context(), settings.pinned);
  FittedPrompt prompt = fit_prompt(std::move(text), window, settings.tokens, settings.overflow);
  GenerationResult result{.prompt_tokens = std::ssize(prompt.tokens), .left_out = prompt.left_out};
  if (settings.tokens == 0) return result;
  GrowingText growing(tokenizer, decoder.vocabulary(), std::move(prompt.tokens), settings, write);
  Clock::time_point began = Clock::now();
  decoder.reserve(std::ssize(growing.text()) + std::min(settings.tokens, decoder.context()));
  decoder.see(growing.text(), {.pinned = settings.pinned});
  result.prompt_seconds = seconds_since(began);
  began = Clock::now();
  for (Round round;;) {
    const std::int32_t token = growing.draw(decoder.logits(round.taken));
    if (!growing.add(token)) break;
    if (round.takes(token)) {
      ++result.taken;
      continue;
    }
    const std::int64_t tokens = std::ssize(growing.text());
    check_overflow(tokens, window, settings.overflow);
    result.dropped_tokens = window.dropped(tokens);
    if (draft != nullptr) {
      draft->update(std::ssize(round.drafts), round.taken, round.seconds);
      const std::int64_t room = decoder.draft_capacity(tokens, settings.pinned);
      round.drafts = draft->draft(growing.text(), growing.words(), growing.sampling(),
                                  static_cast<std::uint64_t>(growing.tokens()),
                                  std::min(growing.left() - 1, room));
    }
    result.drafted += std::ssize(round.drafts);
    round.see(decoder, growing.text(), settings.pinned);
  }
  result.tokens = growing.tokens();
  result.seconds = seconds_since(began);
  return result;
}

GenerationResult generate_text(LanguageModel& model, const Tokenizer& tokenizer,
                               const std::string& prompt, const GenerationSettings& settings,
                               const std::function<void(std::string_view)>& write,
                               const Stream& stream, DType dtype) {
  check(settings);
  CachedDecoder decoder(model, dtype, stream);
  GenerationSettings pinning = settings;
  pinning.pinned = std::max(pinning.pinned, std::ssize(tokenizer.template_start()));
  GenerationResult result =
      continue_text(decoder, nullptr, tokenizer, prompt_tokens(tokenizer, prompt), pinning, write);
  if (prompt.empty()) result.prompt_tokens = 0;
  return result;
}

}  // namespace hybrid_trainer
