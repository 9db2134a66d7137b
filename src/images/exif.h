#pragma once

#include <string_view>

namespace hybrid_trainer {

/// How the camera was held, 1 to 8 (see `upright`), by the TIFF block of EXIF data; 1 where it does not
/// say so or is damaged.
int exif_orientation(std::string_view tiff);

}  // namespace hybrid_trainer
