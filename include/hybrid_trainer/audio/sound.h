#pragma once

#include <cstdint>
#include <vector>

namespace hybrid_trainer {

/// Rate of all sound that a model hears, in samples a second.
inline constexpr std::int64_t kSpeechRate = 16000;

/// Sound of one channel; full scale is -1 to 1.
struct Sound {
  std::vector<float> samples{};
  std::int64_t rate = kSpeechRate;  // samples a second
  double seconds() const { return static_cast<double>(samples.size()) / static_cast<double>(rate); }
};

}  // namespace hybrid_trainer
