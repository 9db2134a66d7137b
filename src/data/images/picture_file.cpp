#include "src/data/images/picture_file.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"
#include "src/data/images/npy_file.h"
#include "src/data/images/picture_formats.h"

namespace hybrid_trainer {

void check_picture_size(std::int64_t height, std::int64_t width, const std::string& path) {
  if (height < 1 || width < 1)
    throw DataError(
        concat(path, ": has ", height, " rows of ", width, " pixels; want at least 1 of each"));
  if (width > kMaxPixels / height)
    throw DataError(concat(path, ": declares ", height, " x ", width, " pixels; want at most ",
                           kMaxPixels, " pixels in total"));
}

void check_compressed_size(std::int64_t height, std::int64_t width, std::size_t bytes,
                           const std::string& path) {
  constexpr std::int64_t kAlwaysAllowed = 1 << 24, kPerByte = 1024;
  check_picture_size(height, width, path);
  const std::int64_t most = kAlwaysAllowed + kPerByte * static_cast<std::int64_t>(bytes);
  if (height * width > most)
    throw DataError(concat(path, ": declares ", height, " x ", width, " pixels in ", bytes,
                           " bytes; want at most ", most, " pixels, ", kPerByte, " per byte"));
}

namespace {

using namespace std::string_view_literals;

/// Returns the kind of a file by its first bytes, or "" if unknown.
std::string kind_of(std::string_view start) {
  struct Kind {
    std::size_t at;
    std::string_view bytes;
    const char* name;
  };
  static constexpr Kind kKinds[] = {
      {0, "\x89PNG\r\n\x1A\n"sv, "PNG"},
      {0, "\xFF\xD8\xFF"sv, "JPEG"},
      {0, "GIF8"sv, "GIF"},
      {8, "WEBP"sv, "WebP"},
      {0, "BM"sv, "BMP"},
      {0, "II*\0"sv, "TIFF"},
      {0, "MM\0*"sv, "TIFF"},
      {4, "ftypavif"sv, "AVIF"},
      {4, "ftypheic"sv, "HEIC"},
      {4, "ftypmif1"sv, "HEIC"},
      {0, "\xFF\x0A"sv, "JPEG XL"},
      {0, "\0\0\0\x0CJXL "sv, "JPEG XL"},
      {0, "\0\0\0\x0CjP  "sv, "JPEG 2000"},
      {0, "P5"sv, "PGM"},
      {0, "P6"sv, "PPM"},
      {0, "<svg"sv, "SVG"},
      {0, "%PDF"sv, "PDF"},
  };
  for (const auto& [at, bytes, name] : kKinds)
    if (start.size() >= at && start.substr(at).starts_with(bytes)) return name;
  return "";
}

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const std::int64_t size : shape) sizes.push_back(std::to_string(size));
  return "(" + join(sizes) + ")";
}

std::int64_t colors_of(const NpyForm& form, const std::string& path) {
  const std::size_t rank = form.shape.size();
  const std::int64_t colors = rank == 3 ? form.shape[2] : 1;
  if ((rank == 2 || rank == 3) && (colors == 1 || colors == 3 || colors == 4)) return colors;
  throw DataError(
      concat(path, ": contains an array of shape ", shape_text(form.shape),
             "; want (height, width), or (height, width, colors) with 1, 3 or 4 colors"));
}

PictureForm form_of_array(const NpyForm& form, const std::string& path) {
  colors_of(form, path);
  check_picture_size(form.shape[0], form.shape[1], path);
  return {PictureKind::kNpy, form.shape[0], form.shape[1]};
}

std::uint8_t color_of(float value, bool is_fraction, const std::string& path) {
  const float most = is_fraction ? 1.0f : 255.0f;
  if (!(value >= 0 && value <= most))
    throw DataError(concat(path, ": has the color value ", value, "; want ",
                           is_fraction ? "fractions from 0 to 1, or whole numbers from 0 to 255 of "
                                         "type uint8 (array.astype('uint8'))"
                                       : "whole numbers from 0 to 255"));
  return narrow<std::uint8_t>(std::lrint(is_fraction ? value * 255.0f : value));
}

Picture picture_of_array(const FilePart& path) {
  const NpyArray array = read_npy(path);
  const PictureForm form = form_of_array(array.form, path.native());
  const auto colors = static_cast<std::size_t>(colors_of(array.form, path.native()));
  const bool is_fraction = array.form.number.is_floating();
  Picture picture = Picture::of_size(form.height, form.width);
  for (std::size_t i = 0; i < picture.pixels.size() / 3; ++i)
    for (std::size_t c = 0; c < 3; ++c)
      picture.pixels[3 * i + c] =
          color_of(array.values[i * colors + (colors == 1 ? 0 : c)], is_fraction, path.native());
  return picture;
}

}  // namespace

void refuse_other_file(const InputFile& file, const std::string& wanted) {
  std::string start(std::min<std::size_t>(file.bytes(), 64), '\0');
  file.read_at(start.data(), start.size(), 0);
  const std::string path = file.path().native() + ": ";
  if (start.empty()) throw DataError(path + "is empty; want a " + wanted);
  if (start.starts_with("version https://git-lfs"))
    throw DataError(concat(path, "is a Git LFS pointer, not a ", wanted,
                           "; get the file itself with: git lfs pull"));
  const std::filesystem::path name = file.path().filename();
  if (start.starts_with("PK\x03\x04"))
    throw DataError(concat(path, "is a ZIP archive (such as .npz), not a ", wanted,
                           "; write its arrays to separate files: numpy.save('NAME.npy', "
                           "numpy.load(FILE)['NAME'])"));
  const std::string kind = kind_of(start);
  if (kind.empty())
    throw DataError(
        concat(path, "is not a ", wanted, ": it does not begin like a PNG, JPEG or .npy file"));
  if (kind == "PNG" || kind == "JPEG" || wanted == ".npy file")
    throw DataError(concat(path, "is ", kind, ", not a ", wanted));
  throw DataError(concat(
      path, "is ", kind, ", which is not supported; convert it to PNG, for example: ", "convert '",
      name.string(), "' '", std::filesystem::path(name).replace_extension(".png").string(), "'"));
}

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
  const std::string bytes = read_file(path, kMaxFileBytes);
  return kind == PictureKind::kPng ? png_form(bytes, path.native())
                                   : jpeg_form(bytes, path.native());
}

Picture read_picture(const FilePart& path) {
  const PictureKind kind = read_picture_kind(path);
  if (kind == PictureKind::kNpy) return picture_of_array(path);
  const std::string bytes = read_file(path, kMaxFileBytes);
  return kind == PictureKind::kPng ? read_png(bytes, path.native())
                                   : read_jpeg(bytes, path.native());
}

}  // namespace hybrid_trainer
