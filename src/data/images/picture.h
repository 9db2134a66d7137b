#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hybrid_trainer {

inline constexpr std::int64_t kColors = 3;  // red, green, blue

/// A picture of 8 bits a color.
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

/// The ways in which a camera may have been held, as EXIF numbers them: 1 is upright, 2 mirrored, 3
/// upside down, 4 its mirror image, 5 to 8 lie on a side. Turns the picture upright.
Picture upright(Picture picture, int orientation);

/// The same rows, each from its end.
Picture mirrored(Picture picture);

/// How the pixels of a picture of another size are found, with PIL's numbers.
enum class PictureFilter {
  kNearest = 0,
  kLanczos = 1,
  kBilinear = 2,
  kBicubic = 3,
  kBox = 4,
  kHamming = 5
};

/// The picture at another size. A smaller one has means over all pixels that one of its own covers. All
/// bits are those of Image.resize of PIL 13: sums in whole numbers of 2^-22, rounded to 8 bits between both
/// dimensions. Earlier ones differ by a rounding in narrow pictures that only lose height.
Picture resized(const Picture& picture, std::int64_t height, std::int64_t width,
                PictureFilter filter);

}  // namespace hybrid_trainer
