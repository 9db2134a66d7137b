#pragma once

#include "hybrid_trainer/files/input_file.h"
#include "src/data/images/picture.h"

namespace hybrid_trainer {

enum class PictureKind { kPng, kJpeg, kNpy };

/// Properties from the beginning of a picture file.
struct PictureForm {
  PictureKind kind = PictureKind::kPng;
  std::int64_t height = 0, width = 0;  // as stored, before turning it upright
};

/// Returns the kind of a picture file by its first bytes. Throws MissingInput, IoError, or
/// DataError naming the kind of a file that is not a picture.
PictureKind read_picture_kind(const FilePart& path);

/// Reads the header of a PNG or JPEG file, or of a .npy array (H, W) or (H, W, C) with 1, 3 or 4
/// colors. Detects truncation as far as possible without decoding. Throws MissingInput, IoError, or
/// DataError if the file is of another kind, damaged, or larger than 178 million pixels.
PictureForm read_picture_form(const FilePart& path);

/// Reads a picture like PIL's convert("RGB"): replaces palette indices by colors, repeats a single
/// color three times, and discards transparency. Applies the EXIF orientation. Arrays have integers
/// from 0 to 255, or fractions from 0 to 1, rounded to 8 bits. Throws like read_picture_form, and
/// DataError if pixels are damaged, truncated, 16-bit with a single color, or out of range.
Picture read_picture(const FilePart& path);

}  // namespace hybrid_trainer
