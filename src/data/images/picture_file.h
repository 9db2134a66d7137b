#pragma once

#include "hybrid_trainer/files/input_file.h"
#include "src/data/images/picture.h"

namespace hybrid_trainer {

enum class PictureKind { kPng, kJpeg, kNpy };

/// What the beginning of a file of a picture says.
struct PictureForm {
  PictureKind kind = PictureKind::kPng;
  std::int64_t height = 0, width = 0;  // as they stand in the file, before it is turned upright
};

/// What a file is by its first bytes. Throws MissingInput; DataError where it is something else, which
/// it names; IoError.
PictureKind read_picture_kind(const FilePart& path);

/// Looks at a PNG or JPEG file, or at a .npy array (H, W) or (H, W, C) of 1, 3 or 4 colors. Sees
/// whether it was cut off, as far as that shows without unpacking it. Throws MissingInput; DataError
/// where the file is something else, damaged, or larger than 178 million pixels; IoError.
PictureForm read_picture_form(const FilePart& path);

/// Reads a picture as PIL's convert("RGB") does: of palettes the colors, of one color all three, and
/// transparency is left out. What a camera says about how it was held (EXIF) is heeded. Arrays hold
/// whole numbers from 0 to 255, or fractions from 0 to 1, which are rounded to 8 bits. Throws what
/// read_picture_form throws, and DataError where the pixels are damaged or cut off, have 16 bits of
/// one color, or are out of range.
Picture read_picture(const FilePart& path);

}  // namespace hybrid_trainer
