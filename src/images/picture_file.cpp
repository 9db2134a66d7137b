#include "hybrid_trainer/images/picture_file.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/narrow.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/images/npy_file.h"
#include "src/images/jpeg_file.h"
#include "src/images/npy_header.h"
#include "src/images/other_files.h"
#include "src/images/picture_size.h"
#include "src/images/png_file.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{1} << 30;

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const std::int64_t size : shape) sizes.push_back(std::to_string(size));
  return "(" + join(sizes) + ")";
}

/// Colors of an array that holds a picture.
std::int64_t colors_of(const NpyForm& form, const std::string& path) {
  const std::size_t rank = form.shape.size();
  const std::int64_t colors = rank == 3 ? form.shape[2] : 1;
  if ((rank == 2 || rank == 3) && (colors == 1 || colors == 3 || colors == 4)) return colors;
  throw DataError(concat(path, ": holds an array of shape ", shape_text(form.shape),
                         "; want (height, width), or (height, width, colors) with 1, 3 or 4"));
}

PictureForm form_of_array(const NpyForm& form, const std::string& path) {
  colors_of(form, path);
  check_picture_size(form.shape[0], form.shape[1], path);
  return {PictureKind::kNpy, form.shape[0], form.shape[1]};
}

/// A number of an array as 8 bits.
std::uint8_t color_of(float value, bool is_fraction, const std::string& path) {
  const float most = is_fraction ? 1.0f : 255.0f;
  if (!(value >= 0 && value <= most))
    throw DataError(concat(path, ": has the color ", value, "; want ",
                           is_fraction ? "fractions from 0 to 1, or whole numbers from 0 to 255 as "
                                         "array.astype('uint8') has them"
                                       : "whole numbers from 0 to 255"));
  return narrow<std::uint8_t>(std::lrint(is_fraction ? value * 255.0f : value));
}

Picture picture_of_array(const FilePart& path) {
  const NpyArray array = read_npy(path);
  const PictureForm form = form_of_array(array.form, path.native());
  const auto colors = static_cast<std::size_t>(colors_of(array.form, path.native()));
  const bool is_fraction = is_floating(array.form.number);
  Picture picture = Picture::of_size(form.height, form.width);
  for (std::size_t i = 0; i < picture.pixels.size() / 3; ++i)
    for (std::size_t c = 0; c < 3; ++c)
      picture.pixels[3 * i + c] =
          color_of(array.values[i * colors + (colors == 1 ? 0 : c)], is_fraction, path.native());
  return picture;
}

}  // namespace

PictureKind read_picture_kind(const FilePart& path) {
  const InputFile file(path);
  std::string start(std::min<std::size_t>(file.bytes(), 16), '\0');
  file.read_at(start.data(), start.size(), 0);
  if (start.starts_with(kNpyMagic)) return PictureKind::kNpy;
  if (is_png(start)) return PictureKind::kPng;
  if (!is_jpeg(start)) refuse_other_file(file, "picture");
  return PictureKind::kJpeg;
}

PictureForm read_picture_form(const FilePart& path) {
  const PictureKind kind = read_picture_kind(path);
  if (kind == PictureKind::kNpy) return form_of_array(read_npy_form(path), path.native());
  const std::string bytes = read_file(path, kMostFileBytes);
  return kind == PictureKind::kPng ? png_form(bytes, path.native())
                                   : jpeg_form(bytes, path.native());
}

Picture read_picture(const FilePart& path) {
  const PictureKind kind = read_picture_kind(path);
  if (kind == PictureKind::kNpy) return picture_of_array(path);
  const std::string bytes = read_file(path, kMostFileBytes);
  return kind == PictureKind::kPng ? read_png(bytes, path.native())
                                   : read_jpeg(bytes, path.native());
}

}  // namespace hybrid_trainer
