#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace hybrid_trainer {

/// Powers of the frequencies in windows of 400 samples, several windows at once. A complex Fourier
/// transform of 400 = 4 · 4 · 5 · 5 values computes two windows.
class FramePowers {
 public:
  static constexpr std::int64_t kWindow = 400, kBins = kWindow / 2 + 1;
  static constexpr std::int64_t kPairs = 4, kFrames = 2 * kPairs;  // at once
  FramePowers();
  /// Takes the samples of a window, 0 … kFrames - 1, and puts them under a Hann window.
  void load(std::int64_t frame, const float* samples);
  /// Transforms what was loaded: power(k, frame) of each bin.
  void transform();
  double power(std::int64_t bin, std::int64_t frame) const {
    return powers_[static_cast<std::size_t>(bin * kFrames + frame)];
  }

 private:
  struct Values {  // of all pairs
    std::array<double, kPairs> real{}, imaginary{};
  };
  struct Turn {
    double cosine = 1, sine = 0;
  };
  template <int kRadix>
  void stage(std::int64_t parts, std::int64_t stride, const std::vector<Turn>& turns);
  static void butterfly(std::array<Values, 4>& x);
  static void butterfly(std::array<Values, 5>& x);

  std::vector<double> window_, powers_;
  std::vector<Values> values_, other_;
  std::array<std::vector<Turn>, 4> turns_;  // of each stage
};

}  // namespace hybrid_trainer
