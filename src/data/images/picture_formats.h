#pragma once

#include "hybrid_trainer/files/input_file.h"
#include "src/data/images/picture_file.h"

namespace hybrid_trainer {

/// Maximum pixels of a picture; PIL treats more as an attack.
inline constexpr std::int64_t kMaxPixels = 178'956'970;

/// Throws DataError if a picture has no pixels or more than kMaxPixels.
void check_picture_size(std::int64_t height, std::int64_t width, const std::string& path);
/// Throws like check_picture_size, also if `bytes` bytes claim far more pixels than real pictures.
void check_compressed_size(std::int64_t height, std::int64_t width, std::size_t bytes,
                           const std::string& path);

/// Returns the orientation, 1 to 8 (see `upright`), from EXIF's TIFF block; 1 if absent or damaged.
int exif_orientation(std::string_view tiff);

/// Throws DataError for a file that is not a `wanted` ("picture"). The message names the file's
/// actual kind by its first bytes, and how to convert it.
[[noreturn]] void refuse_other_file(const InputFile& file, const std::string& wanted);

/// Returns whether the bytes begin like a JPEG file.
bool is_jpeg(std::string_view bytes);
/// Read the form and the pixels of a JPEG file's bytes; `path` is for messages. Throw DataError.
PictureForm jpeg_form(std::string_view bytes, const std::string& path);
Picture read_jpeg(std::string_view bytes, const std::string& path);

/// Returns whether the bytes begin like a PNG file.
bool is_png(std::string_view bytes);
/// Read the form and the pixels of a PNG file's bytes; `path` is for messages. Throw DataError.
PictureForm png_form(std::string_view bytes, const std::string& path);
Picture read_png(std::string_view bytes, const std::string& path);

}  // namespace hybrid_trainer
