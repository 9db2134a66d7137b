#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hybrid_trainer {

inline constexpr std::int64_t kColors = 3;  // red, green, blue

struct Picture {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels{};  // (height, width, 3)

  static Picture of_size(std::int64_t height, std::int64_t width) {
    return {height, width,
            std::vector<std::uint8_t>(static_cast<std::size_t>(height * width * kColors))};
  }
  const std::uint8_t* at(std::int64_t y, std::int64_t x) const {
    return pixels.data() + (y * width + x) * kColors;
  }
  std::uint8_t* at(std::int64_t y, std::int64_t x) {
    return pixels.data() + (y * width + x) * kColors;
  }
};

/// Turns a picture upright. `orientation` is the EXIF number from 1, upright, to 8.
Picture upright(Picture picture, int orientation);

Picture mirrored(Picture picture);

/// Interpolation filters for resizing. The enumerators have PIL's values.
enum class PictureFilter {
  kNearest = 0,
  kLanczos = 1,
  kBilinear = 2,
  kBicubic = 3,
  kBox = 4,
  kHamming = 5
};

/// Resizes a picture. When shrinking, a pixel is the mean over all source pixels that it covers.
/// Bit-identical to Image.resize of PIL 13, which sums in integers of 2^-22 and rounds to 8 bits
/// after the first dimension. Earlier versions differ by a rounding in narrow pictures of which
/// only the height shrinks.
Picture resized(const Picture& picture, std::int64_t height, std::int64_t width,
                PictureFilter filter);

}  // namespace hybrid_trainer
