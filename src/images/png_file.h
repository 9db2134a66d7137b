#pragma once

#include <string>
#include <string_view>

#include "hybrid_trainer/images/picture_file.h"

namespace hybrid_trainer {

/// Whether the bytes begin as a PNG file does.
bool is_png(std::string_view bytes);
/// The form and the pixels of a PNG file's bytes; `path` is for messages. Throw DataError.
PictureForm png_form(std::string_view bytes, const std::string& path);
Picture read_png(std::string_view bytes, const std::string& path);

}  // namespace hybrid_trainer
