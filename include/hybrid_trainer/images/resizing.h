#pragma once

#include <cstdint>

#include "hybrid_trainer/images/picture.h"

namespace hybrid_trainer {

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
