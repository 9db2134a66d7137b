#include "hybrid_trainer/images/picture.h"

#include <algorithm>
#include <utility>

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

}  // namespace hybrid_trainer
