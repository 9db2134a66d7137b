#pragma once

#include <array>
#include <span>

#include "hybrid_trainer/files/input_file.h"
#include "src/data/images/picture.h"

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

/// Makes a model's pixel values of pictures, to the bit as transformers' processor does with PIL. Serves
/// several threads at once.
class PictureProcessor {
 public:
  /// A model that sees `height` x `width` pixels. Throws DataError where these steps do not end there.
  PictureProcessor(const PictureSteps& steps, std::int64_t height, std::int64_t width);

  const PictureSteps& steps() const { return steps_; }
  std::int64_t height() const { return height_; }
  std::int64_t width() const { return width_; }
  /// Numbers of a picture.
  std::int64_t values() const { return height_ * width_ * kColors; }

  /// Throws DataError where read_picture_form does, or the file is an array (3, height, width) of
  /// floats of another size, or a picture whose size the steps leave and that is not the model's.
  void check(const FilePart& path) const;
  /// Pixel values (height, width, 3) of a file. An array of floats (3, height, width) of the model's size
  /// holds pixel values already, which are taken as they are. Throws what read_picture throws.
  void write(const FilePart& path, std::span<float> to, bool mirrors = false) const;
  /// Of a picture in memory.
  void write(const Picture& picture, std::span<float> to) const;

 private:
  Picture shaped(const Picture& picture) const;
  PictureSteps steps_;
  std::int64_t height_, width_;
  std::array<std::array<float, 256>, kColors> values_{};  // of each color
};

}  // namespace hybrid_trainer
