#include "src/speech/timestamp_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hybrid_trainer {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void forbid(std::span<float> scores, std::int64_t begin, std::int64_t end) {
  const std::int64_t last = std::min<std::int64_t>(end, std::ssize(scores));
  for (std::int64_t id = std::max<std::int64_t>(begin, 0); id < last; ++id)
    scores[static_cast<std::size_t>(id)] = kNever;
}

/// log Σ e^score.
double log_sum(std::span<const float> scores) {
  const float most = *std::ranges::max_element(scores);
  if (most == kNever) return -std::numeric_limits<double>::infinity();
  double sum = 0;
  for (const float score : scores) sum += std::exp(static_cast<double>(score - most));
  return static_cast<double>(most) + std::log(sum);
}

}  // namespace

void apply_timestamp_rules(std::span<float> scores, std::span<const std::int32_t> written,
                           const SpeechTokens& tokens) {
  const std::int64_t first = tokens.first_time();
  const std::int64_t all = std::min<std::int64_t>(std::ssize(scores), tokens.times_end);
  const auto forbid_words = [&](std::int64_t end) {  // added words follow the timestamps
    forbid(scores, 0, end);
    forbid(scores, all, std::ssize(scores));
  };
  const auto is_time = [&](std::size_t back) {
    return tokens.is_time(written[written.size() - back]);
  };
  forbid(scores, tokens.no_timestamps, tokens.no_timestamps + 1);
  const bool last = !written.empty() && is_time(1);
  const bool before = written.size() < 2 || is_time(2);
  if (last && before) forbid(scores, first, all);
  if (last && !before) forbid_words(tokens.end);
  const auto latest = std::ranges::find_if(written.rbegin(), written.rend(),
                                           [&](std::int32_t id) { return tokens.is_time(id); });
  if (latest != written.rend()) forbid(scores, first, *latest + (last && !before ? 0 : 1));
  if (written.empty()) {
    forbid_words(first);
    if (tokens.latest_first_time)
      forbid(scores, first + std::int64_t{*tokens.latest_first_time} + 1, all);
  }
  if (first >= all) return;
  const auto begin = static_cast<std::size_t>(first), end = static_cast<std::size_t>(all);
  const double time = log_sum(scores.subspan(begin, end - begin));
  float text = *std::ranges::max_element(scores.first(begin));
  for (const float score : scores.subspan(end)) text = std::max(text, score);
  if (time > static_cast<double>(text)) forbid_words(first);
}

}  // namespace hybrid_trainer
