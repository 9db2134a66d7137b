#include "src/data/images/picture.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"

namespace hybrid_trainer {

namespace {

Picture transposed(const Picture& picture) {
  Picture turned = Picture::of_size(picture.width, picture.height);
  for (std::int64_t y = 0; y < turned.height; ++y)
    for (std::int64_t x = 0; x < turned.width; ++x)
      std::copy_n(picture.at(x, y), kColors, turned.at(y, x));
  return turned;
}

void flip_rows(Picture& picture) {
  const std::int64_t bytes = picture.width * kColors;
  for (std::int64_t y = 0; y < picture.height / 2; ++y)
    std::swap_ranges(picture.at(y, 0), picture.at(y, 0) + bytes,
                     picture.at(picture.height - 1 - y, 0));
}

constexpr int kFractionBits = 22;

double sinc(double x) {
  if (x == 0) return 1;
  const double angle = x * std::numbers::pi;
  return std::sin(angle) / angle;
}

struct Kernel {
  double reach;  // in source pixels, if the size stays the same
  double (*weight)(double);
};

Kernel kernel_of(PictureFilter filter) {
  switch (filter) {
    case PictureFilter::kLanczos:
      return {3, [](double x) { return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0.0; }};
    case PictureFilter::kBicubic:
      return {2, [](double x) {
                constexpr double kSlope = -0.5;
                const double a = std::abs(x);
                if (a < 1) return ((kSlope + 2) * a - (kSlope + 3)) * a * a + 1;
                if (a < 2) return (((a - 5) * a + 8) * a - 4) * kSlope;
                return 0.0;
              }};
    case PictureFilter::kBox:
      return {0.5, [](double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }};
    case PictureFilter::kHamming:
      return {1, [](double x) {
                const double a = std::abs(x);
                if (a >= 1) return 0.0;
                return sinc(a) * (0.54 + 0.46 * std::cos(std::numbers::pi * a));
              }};
    case PictureFilter::kNearest:
    case PictureFilter::kBilinear: break;
  }
  return {1, [](double x) { return std::max(0.0, 1 - std::abs(x)); }};
}

/// Source pixels along one dimension that contribute to a pixel, and their weights times 2^22.
struct Share {
  std::int64_t first = 0;
  std::vector<int> weights{};
};

std::vector<Share> shares(std::int64_t from, std::int64_t to, const Kernel& kernel) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double spread = std::max(scale, 1.0);
  const double reach = kernel.reach * spread;
  std::vector<Share> result(static_cast<std::size_t>(to));
  std::vector<double> weights;
  for (std::int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(0, static_cast<std::int64_t>(center - reach + 0.5));
    const auto end = std::min<std::int64_t>(from, static_cast<std::int64_t>(center + reach + 0.5));
    weights.clear();
    double sum = 0;
    for (std::int64_t x = first; x < end; ++x) {
      const double weight = kernel.weight((static_cast<double>(x) - center + 0.5) * (1.0 / spread));
      weights.push_back(weight);
      sum += weight;
    }
    Share& share = result[static_cast<std::size_t>(i)];
    share.first = first;
    for (double weight : weights) {
      if (sum != 0) weight /= sum;
      share.weights.push_back(
          narrow<int>(std::copysign(0.5, weight) + weight * (1 << kFractionBits)));
    }
  }
  return result;
}

std::uint8_t rounded(int sum) {
  return narrow<std::uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

/// Computes one pixel: the weighted sum of pixels from `from` on at a stride of `step` bytes.
void mix(const std::uint8_t* from, std::int64_t step, const Share& share, std::uint8_t* to) {
  int sums[kColors] = {1 << (kFractionBits - 1), 1 << (kFractionBits - 1),
                       1 << (kFractionBits - 1)};
  for (const int weight : share.weights) {
    for (std::int64_t c = 0; c < kColors; ++c) sums[c] += from[c] * weight;
    from += step;
  }
  for (std::int64_t c = 0; c < kColors; ++c) to[c] = rounded(sums[c]);
}

/// Resizes a picture along the one dimension in which the sizes differ.
Picture stretched(const Picture& picture, std::int64_t height, std::int64_t width,
                  const Kernel& kernel) {
  Picture result = Picture::of_size(height, width);
  const bool is_row = width != picture.width;
  const std::vector<Share> of =
      is_row ? shares(picture.width, width, kernel) : shares(picture.height, height, kernel);
  const std::int64_t step = is_row ? kColors : picture.width * kColors;
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x) {
      const Share& share = of[static_cast<std::size_t>(is_row ? x : y)];
      mix(is_row ? picture.at(y, share.first) : picture.at(share.first, x), step, share,
          result.at(y, x));
    }
  return result;
}

Picture nearest(const Picture& picture, std::int64_t height, std::int64_t width) {
  const auto source = [](std::int64_t at, std::int64_t from, std::int64_t to) {
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    return std::min(from - 1, static_cast<std::int64_t>((static_cast<double>(at) + 0.5) * scale));
  };
  Picture result = Picture::of_size(height, width);
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      std::copy_n(picture.at(source(y, picture.height, height), source(x, picture.width, width)),
                  kColors, result.at(y, x));
  return result;
}

}  // namespace

Picture upright(Picture picture, int orientation) {
  if (orientation < 2 || orientation > 8) return picture;
  if (orientation >= 5) picture = transposed(picture);
  if (orientation == 3 || orientation == 4 || orientation >= 7) flip_rows(picture);
  const bool is_mirrored =
      orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  return is_mirrored ? mirrored(std::move(picture)) : picture;
}

Picture mirrored(Picture picture) {
  for (std::int64_t y = 0; y < picture.height; ++y)
    for (std::int64_t x = 0; x < picture.width / 2; ++x)
      std::swap_ranges(picture.at(y, x), picture.at(y, x) + kColors,
                       picture.at(y, picture.width - 1 - x));
  return picture;
}

Picture resized(const Picture& picture, std::int64_t height, std::int64_t width,
                PictureFilter filter) {
  require(height > 0 && width > 0, "the size of a resized picture must be positive");
  if (height == picture.height && width == picture.width) return picture;
  if (filter == PictureFilter::kNearest) return nearest(picture, height, width);
  const Kernel kernel = kernel_of(filter);
  if (height == picture.height || width == picture.width)
    return stretched(picture, height, width, kernel);
  // PIL 13 begins with the height if it shrinks much more than the width.
  const std::int64_t fewer_rows = picture.height - height, fewer_columns = picture.width - width;
  const bool is_height_first = fewer_rows > 0 && 2 * fewer_columns < fewer_rows;
  const Picture between = is_height_first ? stretched(picture, height, picture.width, kernel)
                                          : stretched(picture, picture.height, width, kernel);
  return stretched(between, height, width, kernel);
}

}  // namespace hybrid_trainer
