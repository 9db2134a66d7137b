#pragma once

#include "hybrid_trainer/files/input_file.h"
#include "src/data/images/picture.h"

namespace hybrid_trainer {

enum class PictureKind { kPng, kJpeg, kNpy };

struct PictureForm {
  PictureKind kind = PictureKind::kPng;
  std::int64_t height = 0, width = 0;  // as stored, before the picture is turned upright
};

/// Returns a picture file's kind. Throws DataError naming another kind, MissingInput, IoError.
PictureKind read_picture_kind(const FilePart& path);

/// Reads the header of a PNG or JPEG file, or of a .npy array (H, W) or (H, W, C) with 1, 3 or 4
/// colors. Throws DataError if the file is of another kind, damaged, or larger than 178 million
/// pixels. Also throws MissingInput and IoError.
PictureForm read_picture_form(const FilePart& path);

/// Reads a picture like PIL's convert("RGB") and applies the EXIF orientation. Arrays have integers
/// from 0 to 255, or fractions from 0 to 1, rounded to 8 bits. Throws like read_picture_form, and
/// DataError for pixels that are damaged, truncated, 16-bit with a single color, or out of range.
Picture read_picture(const FilePart& path);

}  // namespace hybrid_trainer
