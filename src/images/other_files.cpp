#include "src/images/other_files.h"

#include <algorithm>
#include <string_view>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

using namespace std::string_view_literals;

/// What a file is by its first bytes; "" where that is not known.
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

}  // namespace

void refuse_other_file(const InputFile& file, const std::string& wanted) {
  std::string start(std::min<std::size_t>(file.bytes(), 64), '\0');
  file.read_at(start.data(), start.size(), 0);
  const std::string path = file.path().native() + ": ";
  if (start.empty()) throw DataError(path + "is empty; want a " + wanted);
  if (start.starts_with("version https://git-lfs"))
    throw DataError(concat(path, "is a pointer of Git LFS, not a ", wanted,
                           "; get the file itself with: git lfs pull"));
  const std::filesystem::path name = file.path().filename();
  if (start.starts_with("PK\x03\x04"))
    throw DataError(concat(path, "is a ZIP archive, as .npz is, not a ", wanted,
                           "; write its arrays to files of their own: numpy.save('NAME.npy', "
                           "numpy.load(FILE)['NAME'])"));
  const std::string kind = kind_of(start);
  if (kind.empty())
    throw DataError(
        concat(path, "is not a ", wanted, ": it begins as no PNG, JPEG or .npy file does"));
  if (kind == "PNG" || kind == "JPEG" || wanted == ".npy file")
    throw DataError(concat(path, "is ", kind, ", not a ", wanted));
  throw DataError(concat(
      path, "is ", kind, ", which is not read; convert it to PNG, as with: ", "convert '",
      name.string(), "' '", std::filesystem::path(name).replace_extension(".png").string(), "'"));
}

}  // namespace hybrid_trainer
