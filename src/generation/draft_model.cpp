#include "hybrid_trainer/generation/draft_model.h"

#include <algorithm>

#include "hybrid_trainer/core/clock.h"

namespace hybrid_trainer {

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
