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
  std::int64_t shortest_side = 0;  // if not 0, replaces height and width and keeps the proportions
  PictureFilter filter = PictureFilter::kBilinear;
  bool crops = false;  // crops to the center, and pads smaller pictures with black
  std::int64_t crop_height = 224, crop_width = 224;
  bool rescales = true;
  double scale = 1.0 / 255;
  bool normalizes = true;
  std::array<double, 3> mean{0.5, 0.5, 0.5}, deviation{0.5, 0.5, 0.5};  // one number per color

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
  std::int64_t values() const { return height_ * width_ * kColors; }

  /// Throws like read_picture_form. Also throws DataError for another size than the model's, if the
  /// file is an array of floats (3, height, width) or if the steps neither resize nor crop.
  void check(const FilePart& path) const;
  /// Writes pixel values (height, width, 3) of a file. Takes an array of floats (3, height, width)
  /// of the model's size as pixel values without conversion. Throws like read_picture.
  void write(const FilePart& path, std::span<float> to, bool mirrors = false) const;
  void write(const Picture& picture, std::span<float> to) const;

 private:
  Picture shaped(const Picture& picture) const;
  PictureSteps steps_;
  std::int64_t height_, width_;
  std::array<std::array<float, 256>, kColors> values_{};  // value of each 8-bit number by color
};

}  // namespace hybrid_trainer
