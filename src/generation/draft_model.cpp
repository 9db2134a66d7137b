#include "hybrid_trainer/generation/draft_model.h"

#include <algorithm>

#include "hybrid_trainer/core/clock.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kLeastPatience = 8, kMostPatience = 1024, kFirst = 2, kMeasured = 5;
constexpr double kNew = 0.1;      // what new seconds count beside those before
constexpr double kSlowest = 3;    // beyond this, of those before, they tell of the machine
constexpr double kKept = 0.97;    // what earlier tokens count beside a new one
constexpr double kTokens = 8;     // most credit, in tokens without a draft
constexpr double kEarned = 0.02;  // of the time without drafts

void remember(double& lately, double seconds) {
  lately = lately == 0 ? seconds : lately + kNew * (std::min(seconds, kSlowest * lately) - lately);
}

/// Tokens that a round with k drafts makes on average, where each is taken with this probability if
/// those before it are.
double tokens_made(std::int64_t k, double share_taken) {
  double sum = 1, product = 1;
  for (std::int64_t i = 0; i < k; ++i) sum += product *= share_taken;
  return sum;
}

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
    idle_ = 0, patience_ = kLeastPatience;
    return length;
  }
  if (++idle_ < patience_) return 0;
  idle_ = 0, patience_ = std::min(2 * patience_, kMostPatience);
  return 1;
}

void DraftLength::learn_plain(double seconds) {
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

void DraftLength::learn_shares(std::int64_t drafted, std::int64_t taken) {
  for (std::int64_t i = 0; i < std::min(drafted, taken + 1); ++i) {
    taken_ = kKept * taken_ + (i < taken ? 1 : 0);
    tried_ = kKept * tried_ + 1;
  }
}

void DraftLength::learn(std::int64_t drafted, std::int64_t taken, double seconds) {
  if (drafted == 0) return learn_plain(seconds);
  learn_shares(drafted, taken);
  if (!has_drafted_) {
    has_drafted_ = true;
    return;
  }
  remember(extra_, std::max(seconds - plain_, 1e-3 * plain_) / static_cast<double>(drafted));
  if (taken == drafted) patience_ = 1;  // a try that succeeds is soon followed by another
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

void DraftModel::learn(std::int64_t drafted, std::int64_t taken, double seconds) {
  if (seconds > 0 && !fixed_length_) length_.learn(drafted, taken, seconds_ + seconds);
}

}  // namespace hybrid_trainer
