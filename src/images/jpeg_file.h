#pragma once

#include <string>
#include <string_view>

#include "hybrid_trainer/images/picture_file.h"

namespace hybrid_trainer {

/// Whether the bytes begin as a JPEG file does.
bool is_jpeg(std::string_view bytes);
/// The form and the pixels of a JPEG file's bytes; `path` is for messages. Throw DataError.
PictureForm jpeg_form(std::string_view bytes, const std::string& path);
Picture read_jpeg(std::string_view bytes, const std::string& path);

}  // namespace hybrid_trainer
