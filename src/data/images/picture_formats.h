#pragma once

#include "hybrid_trainer/files/input_file.h"
#include "src/data/images/picture_file.h"

namespace hybrid_trainer {

/// Maximum pixels of a picture. PIL treats larger pictures as an attack.
inline constexpr std::int64_t kMaxPixels = 178'956'970;

void check_picture_size(std::int64_t height, std::int64_t width, const std::string& path);
/// Throws like check_picture_size, and DataError for far more pixels than `bytes` bytes can hold in
/// a real picture.
void check_compressed_size(std::int64_t height, std::int64_t width, std::size_t bytes,
                           const std::string& path);

/// Returns the orientation, 1 to 8 (see `upright`), from EXIF's TIFF block, or 1 if it is unusable.
int exif_orientation(std::string_view tiff);

/// Throws DataError for a file that is not a `wanted` ("picture"), with advice to convert it.
[[noreturn]] void refuse_other_file(const InputFile& file, const std::string& wanted);

bool is_jpeg(std::string_view bytes);
/// Read the form and the pixels of a JPEG file's bytes; `path` is for messages. Throw DataError.
PictureForm jpeg_form(std::string_view bytes, const std::string& path);
Picture read_jpeg(std::string_view bytes, const std::string& path);

bool is_png(std::string_view bytes);
/// Read the form and the pixels of a PNG file's bytes; `path` is for messages. Throw DataError.
PictureForm png_form(std::string_view bytes, const std::string& path);
Picture read_png(std::string_view bytes, const std::string& path);

}  // namespace hybrid_trainer
