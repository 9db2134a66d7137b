#pragma once

#include <array>
#include <span>

#include "hybrid_trainer/files/input_file.h"
#include "src/data/images/picture.h"

namespace hybrid_trainer {

/// Steps from a picture to a model's pixel values, in this order.
struct PictureSteps {
  bool resizes = true;
  std::int64_t height = 224, width = 224;
  std::int64_t shortest_side = 0;  // replaces both, keeping proportions; 0: not set
  PictureFilter filter = PictureFilter::kBilinear;
  bool crops = false;  // to the center; pads smaller pictures with black
  std::int64_t crop_height = 224, crop_width = 224;
  bool rescales = true;
  double scale = 1.0 / 255;
  bool normalizes = true;
  std::array<double, 3> mean{0.5, 0.5, 0.5}, deviation{0.5, 0.5, 0.5};  // per color

  /// Returns the steps as JSON, as ViTImageProcessor writes them to preprocessor_config.json.
  std::string json() const;
};

/// Reads a folder's preprocessor_config.json as ViTImageProcessor and DeiTImageProcessor write it.
/// Throws MissingInput; DataError if it describes another processor or has an invalid value.
PictureSteps read_picture_steps(const std::filesystem::path& folder);

/// Converts pictures to pixel values, bit-identical to transformers with PIL. Thread-safe.
class PictureProcessor {
 public:
  /// Throws DataError if the steps do not produce the model's `height` x `width` pixels.
  PictureProcessor(const PictureSteps& steps, std::int64_t height, std::int64_t width);

  const PictureSteps& steps() const { return steps_; }
  std::int64_t height() const { return height_; }
  std::int64_t width() const { return width_; }
  /// Returns the number of values per picture.
  std::int64_t values() const { return height_ * width_ * kColors; }

  /// Throws like read_picture_form, and DataError if the file is an array (3, height, width) of
  /// floats, or a picture that the steps do not resize or crop, with another size than the model's.
  void check(const FilePart& path) const;
  /// Writes pixel values (height, width, 3) of a file. Takes an array of floats (3, height, width)
  /// of the model's size as pixel values without conversion. Throws like read_picture.
  void write(const FilePart& path, std::span<float> to, bool mirrors = false) const;
  void write(const Picture& picture, std::span<float> to) const;

 private:
  Picture shaped(const Picture& picture) const;
  PictureSteps steps_;
  std::int64_t height_, width_;
  std::array<std::array<float, 256>, kColors> values_{};  // by color
};

}  // namespace hybrid_trainer
