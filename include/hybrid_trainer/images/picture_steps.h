#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>

#include "hybrid_trainer/images/resizing.h"

namespace hybrid_trainer {

/// How a model's processor makes pixel values of a picture, in this order.
struct PictureSteps {
  bool resizes = true;
  std::int64_t height = 224, width = 224;
  std::int64_t shortest_side = 0;  // in place of both, the other side in proportion; 0: none
  PictureFilter filter = PictureFilter::kBilinear;
  bool crops = false;  // the middle; what is missing around a smaller picture is black
  std::int64_t crop_height = 224, crop_width = 224;
  bool rescales = true;
  double scale = 1.0 / 255;
  bool normalizes = true;
  std::array<double, 3> mean{0.5, 0.5, 0.5}, deviation{0.5, 0.5, 0.5};  // by color

  /// As ViTImageProcessor writes them to preprocessor_config.json.
  std::string json() const;
};

/// Reads preprocessor_config.json of a folder, as ViTImageProcessor and DeiTImageProcessor write it.
/// Throws MissingInput where there is none; DataError where it describes another processor, or one
/// of its values makes no sense.
PictureSteps read_picture_steps(const std::filesystem::path& folder);

}  // namespace hybrid_trainer
