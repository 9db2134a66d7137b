#pragma once

#include "hybrid_trainer/files/input_file.h"
#include "src/data/images/picture_file.h"

namespace hybrid_trainer {

/// Pixels of the largest picture that is read: what PIL takes for an attack beyond.
inline constexpr std::int64_t kMostPixels = 178'956'970;

/// Throws DataError where a picture has no pixels or more than that.
void check_picture_size(std::int64_t height, std::int64_t width, const std::string& path);
/// Throws DataError, too, if a compressed file of so many bytes claims far more pixels than pictures of
/// anything have.
void check_compressed_size(std::int64_t height, std::int64_t width, std::size_t bytes,
                           const std::string& path);

/// How the camera was held, 1 to 8 (see `upright`), by the TIFF block of EXIF data; 1 where it does not
/// say so or is damaged.
int exif_orientation(std::string_view tiff);

/// Throws the DataError for a file that is no `wanted` ("picture"): it names what the file is instead,
/// by its first bytes, and how to convert it.
[[noreturn]] void refuse_other_file(const InputFile& file, const std::string& wanted);

/// Whether the bytes begin as a JPEG file does.
bool is_jpeg(std::string_view bytes);
/// The form and the pixels of a JPEG file's bytes; `path` is for messages. Throw DataError.
PictureForm jpeg_form(std::string_view bytes, const std::string& path);
Picture read_jpeg(std::string_view bytes, const std::string& path);

/// Whether the bytes begin as a PNG file does.
bool is_png(std::string_view bytes);
/// The form and the pixels of a PNG file's bytes; `path` is for messages. Throw DataError.
PictureForm png_form(std::string_view bytes, const std::string& path);
Picture read_png(std::string_view bytes, const std::string& path);

}  // namespace hybrid_trainer
