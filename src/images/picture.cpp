#include "hybrid_trainer/images/picture.h"

#include <algorithm>
#include <utility>

namespace hybrid_trainer {
namespace {

/// Of a picture of height × width the place that stands at (y, x) of the upright one.
std::pair<std::int64_t, std::int64_t> source_of(int orientation, std::int64_t y, std::int64_t x,
                                                std::int64_t height, std::int64_t width) {
  const std::int64_t bottom = height - 1, right = width - 1;
  switch (orientation) {
    case 2:
      return {y, right - x};
    case 3:
      return {bottom - y, right - x};
    case 4:
      return {bottom - y, x};
    case 5:
      return {x, y};
    case 6:
      return {bottom - x, y};
    case 7:
      return {bottom - x, right - y};
    case 8:
      return {x, right - y};
    default:
      return {y, x};
  }
}

}  // namespace

Picture upright(Picture picture, int orientation) {
  if (orientation < 2 || orientation > 8) return picture;
  const bool lies = orientation >= 5;
  Picture turned = Picture::of_size(lies ? picture.width : picture.height,
                                    lies ? picture.height : picture.width);
  for (std::int64_t y = 0; y < turned.height; ++y) {
    for (std::int64_t x = 0; x < turned.width; ++x) {
      const auto [from_y, from_x] = source_of(orientation, y, x, picture.height, picture.width);
      std::copy_n(std::as_const(picture).at(from_y, from_x), kColors, turned.at(y, x));
    }
  }
  return turned;
}

Picture mirrored(const Picture& picture) { return upright(picture, 2); }

}  // namespace hybrid_trainer
