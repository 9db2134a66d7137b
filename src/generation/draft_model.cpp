#include "hybrid_trainer/generation/draft_model.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/clock.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kLeastPatience = 16, kMostPatience = 1024;
constexpr double kNew = 0.1;  // what a new figure counts beside those before

void remember(double& lately, double seconds) {
  lately = lately == 0 ? seconds : lately + kNew * (seconds - lately);
}

/// Tokens that a round with k drafts makes on average, where each is taken with this probability if
/// those before it are.
double tokens_made(std::int64_t k, double share_taken) {
  double sum = 1, product = 1;
  for (std::int64_t i = 0; i < k; ++i) sum += product *= share_taken;
  return sum;
}

}  // namespace

std::int64_t DraftModel::best_length() const {
  if (seconds_[0] == 0) return 0;
  if (draft_seconds_ == 0) return kLongest / 2;
  std::int64_t best = 0;
  double best_rate = 0, seconds = seconds_[0];
  for (std::int64_t k = 0; k <= kLongest; ++k) {
    const double measured = seconds_[static_cast<std::size_t>(k)];
    if (measured > 0) seconds = measured;  // else about that of one token fewer
    const double rate =
        tokens_made(k, share_taken_) / (seconds + static_cast<double>(k) * draft_seconds_);
    if (rate > best_rate) best = k, best_rate = rate;
  }
  return best;
}

std::vector<std::int32_t> DraftModel::draft(std::vector<std::int32_t> text, std::size_t words,
                                            const SamplingSettings& sampling,
                                            std::uint64_t position, std::int64_t most) {
  std::int64_t length = best_length();
  if (length > 0) {
    idle_ = 0, patience_ = kLeastPatience;
  } else if (draft_seconds_ > 0 && ++idle_ >= patience_) {
    length = 1, idle_ = 0, patience_ = std::min(2 * patience_, kMostPatience);
  }
  length = std::min(length, most);
  const auto begin = std::ssize(text);
  for (std::int64_t i = 0; i < length; ++i) {
    const Clock::time_point began = Clock::now();
    decoder_.see(text);
    text.push_back(sample_token(decoder_.logits().first(words), sampling,
                                position + static_cast<std::uint64_t>(i), text));
    if (i > 0) remember(draft_seconds_, seconds_since(began));  // the first one also catches up
  }
  return {text.begin() + begin, text.end()};
}

void DraftModel::learn(std::int64_t drafted, std::int64_t taken, double seconds) {
  if (seconds == 0) return;
  remember(seconds_[static_cast<std::size_t>(drafted)], seconds);
  for (std::int64_t i = 0; i < std::min(drafted, taken + 1); ++i)
    share_taken_ += kNew * ((i < taken ? 1.0 : 0.0) - share_taken_);
}

}  // namespace hybrid_trainer
