#include "src/audio/frame_powers.h"

#include <cmath>
#include <numbers>
#include <utility>

namespace hybrid_trainer {
namespace {

constexpr std::array<int, 4> kRadices{4, 4, 5, 5};
const double kCosine1 = std::cos(0.4 * std::numbers::pi),
             kCosine2 = std::cos(0.8 * std::numbers::pi);
const double kSine1 = std::sin(0.4 * std::numbers::pi), kSine2 = std::sin(0.8 * std::numbers::pi);

}  // namespace

FramePowers::FramePowers()
    : window_(kWindow), powers_(kBins * kFrames), values_(kWindow), other_(kWindow) {
  constexpr double kTurn = 2 * std::numbers::pi;
  for (std::size_t i = 0; i < kWindow; ++i)
    window_[i] = 0.5 - 0.5 * std::cos(kTurn * static_cast<double>(i) / kWindow);
  std::int64_t length = kWindow;
  for (std::size_t s = 0; s < kRadices.size(); ++s) {
    const std::int64_t radix = kRadices[s], parts = length / radix;
    for (std::int64_t p = 0; p < parts; ++p)
      for (std::int64_t k = 0; k < radix; ++k) {
        const double angle = kTurn * static_cast<double>(p * k) / static_cast<double>(length);
        turns_[s].push_back({std::cos(angle), -std::sin(angle)});
      }
    length = parts;
  }
}

void FramePowers::load(std::int64_t frame, const float* samples) {
  const auto pair = static_cast<std::size_t>(frame % kPairs);
  const auto part = frame < kPairs ? &Values::real : &Values::imaginary;
  for (std::size_t i = 0; i < kWindow; ++i) (values_[i].*part)[pair] = window_[i] * samples[i];
}

void FramePowers::butterfly(std::array<Values, 4>& x) {
  for (std::size_t i = 0; i < kPairs; ++i) {
    const double sum_r = x[0].real[i] + x[2].real[i], sum_i = x[0].imaginary[i] + x[2].imaginary[i];
    const double gap_r = x[0].real[i] - x[2].real[i], gap_i = x[0].imaginary[i] - x[2].imaginary[i];
    const double odd_r = x[1].real[i] + x[3].real[i], odd_i = x[1].imaginary[i] + x[3].imaginary[i];
    const double turned_r = x[1].imaginary[i] - x[3].imaginary[i];
    const double turned_i = x[3].real[i] - x[1].real[i];
    x[0].real[i] = sum_r + odd_r, x[0].imaginary[i] = sum_i + odd_i;
    x[1].real[i] = gap_r + turned_r, x[1].imaginary[i] = gap_i + turned_i;
    x[2].real[i] = sum_r - odd_r, x[2].imaginary[i] = sum_i - odd_i;
    x[3].real[i] = gap_r - turned_r, x[3].imaginary[i] = gap_i - turned_i;
  }
}

void FramePowers::butterfly(std::array<Values, 5>& x) {
  const double c1 = kCosine1, c2 = kCosine2, s1 = kSine1, s2 = kSine2;
  for (std::size_t i = 0; i < kPairs; ++i) {
    const double a_r = x[1].real[i] + x[4].real[i], a_i = x[1].imaginary[i] + x[4].imaginary[i];
    const double b_r = x[2].real[i] + x[3].real[i], b_i = x[2].imaginary[i] + x[3].imaginary[i];
    const double c_r = x[1].real[i] - x[4].real[i], c_i = x[1].imaginary[i] - x[4].imaginary[i];
    const double d_r = x[2].real[i] - x[3].real[i], d_i = x[2].imaginary[i] - x[3].imaginary[i];
    const double x_r = x[0].real[i], x_i = x[0].imaginary[i];
    const double even1_r = x_r + c1 * a_r + c2 * b_r, even1_i = x_i + c1 * a_i + c2 * b_i;
    const double even2_r = x_r + c2 * a_r + c1 * b_r, even2_i = x_i + c2 * a_i + c1 * b_i;
    const double odd1_r = s1 * c_r + s2 * d_r, odd1_i = s1 * c_i + s2 * d_i;
    const double odd2_r = s2 * c_r - s1 * d_r, odd2_i = s2 * c_i - s1 * d_i;
    x[0].real[i] = x_r + a_r + b_r, x[0].imaginary[i] = x_i + a_i + b_i;
    x[1].real[i] = even1_r + odd1_i, x[1].imaginary[i] = even1_i - odd1_r;
    x[2].real[i] = even2_r + odd2_i, x[2].imaginary[i] = even2_i - odd2_r;
    x[3].real[i] = even2_r - odd2_i, x[3].imaginary[i] = even2_i + odd2_r;
    x[4].real[i] = even1_r - odd1_i, x[4].imaginary[i] = even1_i + odd1_r;
  }
}

/// One stage of Stockham's algorithm, which needs no reversal of digits.
template <int kRadix>
void FramePowers::stage(std::int64_t parts, std::int64_t stride, const std::vector<Turn>& turns) {
  std::array<Values, std::size_t{kRadix}> x;
  for (std::int64_t p = 0; p < parts; ++p) {
    const Turn* turn = &turns[static_cast<std::size_t>(p * kRadix)];
    for (std::int64_t q = 0; q < stride; ++q) {
      for (int k = 0; k < kRadix; ++k)
        x[static_cast<std::size_t>(k)] =
            values_[static_cast<std::size_t>(q + stride * (p + k * parts))];
      butterfly(x);
      for (int k = 0; k < kRadix; ++k) {
        const Values& from = x[static_cast<std::size_t>(k)];
        Values& to = other_[static_cast<std::size_t>(q + stride * (kRadix * p + k))];
        for (std::size_t i = 0; i < kPairs; ++i) {
          to.real[i] = from.real[i] * turn[k].cosine - from.imaginary[i] * turn[k].sine;
          to.imaginary[i] = from.real[i] * turn[k].sine + from.imaginary[i] * turn[k].cosine;
        }
      }
    }
  }
  std::swap(values_, other_);
}

void FramePowers::transform() {
  stage<4>(100, 1, turns_[0]);
  stage<4>(25, 4, turns_[1]);
  stage<5>(5, 16, turns_[2]);
  stage<5>(1, 80, turns_[3]);
  // The spectra of a pair's two windows are the even and the odd part of theirs.
  for (std::size_t k = 0; k < kBins; ++k) {
    const Values& x = values_[k];
    const Values& y = values_[(kWindow - k) % kWindow];
    for (std::size_t i = 0; i < kPairs; ++i) {
      const double a_r = x.real[i] + y.real[i], a_i = x.imaginary[i] - y.imaginary[i];
      const double b_r = x.imaginary[i] + y.imaginary[i], b_i = y.real[i] - x.real[i];
      powers_[k * kFrames + i] = 0.25 * (a_r * a_r + a_i * a_i);
      powers_[k * kFrames + kPairs + i] = 0.25 * (b_r * b_r + b_i * b_i);
    }
  }
}

}  // namespace hybrid_trainer
