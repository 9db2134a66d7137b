#include "src/audio/mel_filters.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "src/audio/frame_powers.h"

namespace hybrid_trainer {
namespace {

constexpr double kHighestFrequency = 8000;
constexpr double kLinearUpTo = 1000, kMelsUpToThere = 15, kMelsOfLinear = 3.0 / 200;
const double kMelsOfLogarithm = 27 / std::log(6.4);

double mels_of(double frequency) {
  if (frequency < kLinearUpTo) return kMelsOfLinear * frequency;
  return kMelsUpToThere + std::log(frequency / kLinearUpTo) * kMelsOfLogarithm;
}

double frequency_of(double mels) {
  if (mels < kMelsUpToThere) return mels / kMelsOfLinear;
  return kLinearUpTo * std::exp((mels - kMelsUpToThere) / kMelsOfLogarithm);
}

}  // namespace

std::vector<double> mel_filters(std::int64_t mels) {
  require(mels > 0, "features have at least one band");
  constexpr std::int64_t bins = FramePowers::kBins;
  const double highest = mels_of(kHighestFrequency);
  const auto corner = [&](std::int64_t i) {
    return frequency_of(highest * static_cast<double>(i) / static_cast<double>(mels + 1));
  };
  std::vector<double> filters(static_cast<std::size_t>(mels * bins));
  for (std::int64_t m = 0; m < mels; ++m) {
    const double low = corner(m), middle = corner(m + 1), high = corner(m + 2);
    for (std::int64_t k = 0; k < bins; ++k) {
      const double frequency = kHighestFrequency * static_cast<double>(k) / (bins - 1);
      const double rising = (frequency - low) / (middle - low);
      const double falling = (high - frequency) / (high - middle);
      filters[static_cast<std::size_t>(m * bins + k)] =
          std::max(0.0, std::min(rising, falling)) * 2 / (high - low);
    }
  }
  return filters;
}

}  // namespace hybrid_trainer
