#include "hybrid_trainer/generation/continuation_scores.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

/// Of a token after the text whose logits are in this row of the decoder's last pass.
double ContinuationScores::log_probability(std::int64_t row, std::int32_t token) const {
  const std::span<const float> logits = decoder_.logits(row);
  const float largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double value =
      static_cast<double>(logits[static_cast<std::size_t>(token)]) - largest - std::log(sum);
  if (!std::isfinite(value))
    throw Diverged("a logit is not finite: the model's weights are not sound");
  return value;
}

/// The logits behind the prompt are those of each first token. A continuation's last token is not
/// seen: nothing follows it.
std::vector<double> ContinuationScores::log_likelihoods(
    std::span<const std::int32_t> prompt,
    std::span<const std::vector<std::int32_t>> continuations) {
  std::vector<double> sums;
  decoder_.see(prompt);
  for (const std::vector<std::int32_t>& tokens : continuations) {
    require(!tokens.empty() && std::ssize(prompt) + std::ssize(tokens) <= decoder_.context(),
            "log_likelihoods: want at least one token, and room for all in the context");
    sums.push_back(log_probability(0, tokens.front()));
  }
  for (std::size_t i = 0; i < continuations.size(); ++i) {
    const std::vector<std::int32_t>& tokens = continuations[i];
    if (tokens.size() == 1) continue;
    std::vector<std::int32_t> text(prompt.begin(), prompt.end());
    text.insert(text.end(), tokens.begin(), tokens.end() - 1);
    decoder_.see(text, {.drafted = std::ssize(tokens) - 2});
    for (std::size_t at = 1; at < tokens.size(); ++at)
      sums[i] += log_probability(static_cast<std::int64_t>(at) - 1, tokens[at]);
  }
  return sums;
}

}  // namespace hybrid_trainer
