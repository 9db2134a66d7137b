#include "hybrid_trainer/images/picture_processor.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/images/npy_file.h"
#include "hybrid_trainer/images/picture_file.h"

namespace hybrid_trainer {
namespace {

std::string size_text(std::int64_t height, std::int64_t width) {
  return concat(height, " x ", width);
}

/// Half of the difference, rounded down.
std::int64_t half(std::int64_t difference) {
  return difference >= 0 ? difference / 2 : -((1 - difference) / 2);
}

Picture cropped(const Picture& picture, std::int64_t height, std::int64_t width) {
  Picture result = Picture::of_size(height, width);
  const std::int64_t top = half(picture.height - height), left = half(picture.width - width);
  const std::int64_t first = std::max<std::int64_t>(0, -left);
  const std::int64_t end = std::min(width, picture.width - left);
  for (std::int64_t y = 0; y < height; ++y) {
    const std::int64_t from = y + top;
    if (from < 0 || from >= picture.height || end <= first) continue;
    std::copy_n(picture.at(from, first + left), (end - first) * kColors, result.at(y, first));
  }
  return result;
}

/// Whether an array holds pixel values rather than a picture.
bool is_ready(const NpyForm& form) {
  return is_floating(form.number) && form.shape.size() == 3 && form.shape[0] == kColors &&
         form.shape[2] != kColors;
}

bool is_array(const FilePart& path) { return read_picture_kind(path) == PictureKind::kNpy; }

}  // namespace

PictureProcessor::PictureProcessor(const PictureSteps& steps, std::int64_t height,
                                   std::int64_t width)
    : steps_(steps), height_(height), width_(width) {
  const auto want = [&](std::int64_t got_height, std::int64_t got_width) {
    if (got_height == height && got_width == width) return;
    throw DataError(concat("preprocessor_config.json makes pictures of ",
                           size_text(got_height, got_width), " pixels, and the model sees ",
                           size_text(height, width), "; want the same in both"));
  };
  if (steps.crops) {
    want(steps.crop_height, steps.crop_width);
  } else if (steps.resizes && steps.shortest_side > 0) {
    throw DataError(concat(
        "preprocessor_config.json resizes the shortest side alone, so that pictures differ in "
        "size, and the model sees ",
        size_text(height, width),
        R"(; want "do_center_crop": true with "crop_size", or "size" with "height" and "width")"));
  } else if (steps.resizes) {
    want(steps.height, steps.width);
  }
  for (std::size_t color = 0; color < values_.size(); ++color)
    for (std::size_t i = 0; i < values_[color].size(); ++i) {
      float value = static_cast<float>(i);
      if (steps.rescales) value = static_cast<float>(static_cast<double>(i) * steps.scale);
      if (steps.normalizes)
        value = (value - static_cast<float>(steps.mean[color])) /
                static_cast<float>(steps.deviation[color]);
      if (!std::isfinite(value))
        throw DataError(
            concat("preprocessor_config.json makes the pixel value ", value, " of ", i,
                   "; want finite numbers of rescale_factor, image_mean and image_std"));
      values_[color][i] = value;
    }
}

void PictureProcessor::check(const FilePart& path) const {
  if (is_array(path)) {
    const NpyForm array = read_npy_form(path);
    if (is_ready(array)) {
      if (array.shape[1] != height_ || array.shape[2] != width_)
        throw DataError(concat(path.native(), ": holds pixel values of 3 x ",
                               size_text(array.shape[1], array.shape[2]), ", and the model sees ",
                               size_text(height_, width_)));
      return;
    }
  }
  const PictureForm form = read_picture_form(path);
  if (steps_.resizes || steps_.crops) return;
  const bool fits = (form.height == height_ && form.width == width_) ||
                    (form.height == width_ && form.width == height_);  // it may lie on a side
  if (!fits)
    throw DataError(concat(path.native(), ": has ", size_text(form.height, form.width),
                           " pixels, the model sees ", size_text(height_, width_),
                           ", and preprocessor_config.json neither resizes nor crops"));
}

void PictureProcessor::write(const FilePart& path, std::span<float> to, bool mirrors) const {
  require(std::ssize(to) == values(), "a picture's values fill their place");
  if (is_array(path) && is_ready(read_npy_form(path))) {
    check(path);
    const NpyArray array = read_npy(path);
    const std::int64_t pixels = height_ * width_;
    for (std::int64_t i = 0; i < pixels; ++i) {
      const std::int64_t column = mirrors ? width_ - 1 - i % width_ : i % width_;
      const std::int64_t from = i - i % width_ + column;
      for (std::int64_t c = 0; c < kColors; ++c) {
        const float value = array.values[static_cast<std::size_t>(c * pixels + from)];
        if (!std::isfinite(value))
          throw DataError(concat(path.native(), ": holds ", value, "; want finite numbers"));
        to[static_cast<std::size_t>(i * kColors + c)] = value;
      }
    }
    return;
  }
  Picture picture = read_picture(path);
  write(mirrors ? mirrored(std::move(picture)) : picture, to);
}

void PictureProcessor::write(const Picture& picture, std::span<float> to) const {
  const Picture shaped_picture = shaped(picture);
  if (shaped_picture.height != height_ || shaped_picture.width != width_)
    throw DataError(concat("a picture has ", size_text(shaped_picture.height, shaped_picture.width),
                           " pixels, and the model sees ", size_text(height_, width_)));
  for (std::size_t i = 0; i < shaped_picture.pixels.size(); ++i)
    to[i] = values_[i % kColors][shaped_picture.pixels[i]];
}

Picture PictureProcessor::shaped(const Picture& picture) const {
  const auto finished = [&](const Picture& sized) {
    return steps_.crops ? cropped(sized, steps_.crop_height, steps_.crop_width) : sized;
  };
  if (!steps_.resizes) return finished(picture);
  std::int64_t height = steps_.height, width = steps_.width;
  if (steps_.shortest_side > 0) {
    const bool is_upright = picture.width <= picture.height;
    const std::int64_t longest = std::max(picture.width, picture.height),
                       shortest = std::min(picture.width, picture.height);
    const auto side = static_cast<std::int64_t>(
        static_cast<double>(steps_.shortest_side * longest) / static_cast<double>(shortest));
    height = is_upright ? side : steps_.shortest_side;
    width = is_upright ? steps_.shortest_side : side;
  }
  constexpr std::int64_t kMostResized = 1 << 25;
  if (height > kMostResized / width)
    throw DataError(concat("a picture of ", size_text(picture.height, picture.width),
                           " pixels becomes one of ", size_text(height, width),
                           " by preprocessor_config.json before it is cropped; want at most ",
                           kMostResized, " pixels, so crop the picture first"));
  return finished(resized(picture, height, width, steps_.filter));
}

}  // namespace hybrid_trainer
