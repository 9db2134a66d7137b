#include "src/data/images/picture_processor.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"
#include "src/data/images/npy_file.h"
#include "src/data/images/picture_file.h"
#include "src/data/tables/row_files.h"
#include "src/files/json.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kLongestSide = 16'384;

class StepsReader {
 public:
  StepsReader(const json::object& keys, const std::filesystem::path& path)
      : keys_(keys), path_(path) {}

  PictureSteps read() {
    PictureSteps steps = defaults();
    read_flag("do_resize", steps.resizes);
    read_flag("do_center_crop", steps.crops);
    read_flag("do_rescale", steps.rescales);
    read_flag("do_normalize", steps.normalizes);
    refuse_pad();
    read_size(steps);
    read_crop(steps);
    read_filter(steps);
    read_number("rescale_factor", steps.scale);
    read_colors("image_mean", steps.mean);
    read_colors("image_std", steps.deviation);
    if (steps.normalizes && std::ranges::any_of(steps.deviation, [](double x) { return !(x > 0); }))
      refuse("image_std", "numbers above 0");
    return steps;
  }

 private:
  [[noreturn]] void refuse(const char* key, const std::string& wanted) const {
    const json::value* got = find(key);
    throw DataError(concat(path_.native(), ": ", key, ": got ",
                           got == nullptr ? "nothing" : json_line(*got).substr(0, 60), ", want ",
                           wanted));
  }
  const json::value* find(const char* key) const { return value_in_row(keys_, key); }

  /// Returns the defaults of the named class for missing keys.
  PictureSteps defaults() const {
    const char* key =
        find("image_processor_type") ? "image_processor_type" : "feature_extractor_type";
    const json::value* type = find(key);
    if (type == nullptr) return {};
    if (type->is_string()) {
      const std::string_view name = type->get_string();
      if (name.starts_with("ViTImageProcessor") || name == "ViTFeatureExtractor") return {};
      if (name.starts_with("DeiTImageProcessor") || name == "DeiTFeatureExtractor")
        return {.height = 256,
                .width = 256,
                .filter = PictureFilter::kBicubic,
                .crops = true,
                .mean = {0.485, 0.456, 0.406},
                .deviation = {0.229, 0.224, 0.225}};
    }
    refuse(key, "ViTImageProcessor or DeiTImageProcessor");
  }

  void read_flag(const char* key, bool& to) const {
    const json::value* value = find(key);
    if (value == nullptr) return;
    if (!value->is_bool()) refuse(key, "true or false");
    to = value->get_bool();
  }
  void read_number(const char* key, double& to) const {
    const json::value* value = find(key);
    if (value == nullptr) return;
    if (!value->is_number()) refuse(key, "a number");
    to = value->to_number<double>();
  }
  void refuse_pad() const {
    bool pads = false;
    read_flag("do_pad", pads);
    if (pads) refuse("do_pad", "false: only resizing and cropping are supported");
  }

  std::int64_t side(const char* key, const json::value& value) const {
    const bool is_side =
        value.is_int64() && value.get_int64() >= 1 && value.get_int64() <= kLongestSide;
    if (!is_side) refuse(key, concat("sides of 1 to ", kLongestSide, " pixels"));
    return value.get_int64();
  }
  /// Reads a number for both sides, a list of height and width, or an object that names them.
  void read_sides(const char* key, std::int64_t& height, std::int64_t& width) const {
    const json::value& value = *find(key);
    if (value.is_array() && value.get_array().size() == 2) {
      height = side(key, value.get_array()[0]);
      width = side(key, value.get_array()[1]);
    } else if (value.is_object() && value.get_object().contains("height") &&
               value.get_object().contains("width")) {
      height = side(key, value.at("height"));
      width = side(key, value.at("width"));
    } else if (value.is_number()) {
      height = width = side(key, value);
    } else {
      refuse(key, R"(a number or {"height": 224, "width": 224})");
    }
  }
  void read_size(PictureSteps& steps) const {
    const json::value* size = find("size");
    if (size == nullptr) return;
    const json::object* sides = size->if_object();
    const json::value* shortest = sides ? sides->if_contains("shortest_edge") : nullptr;
    if (shortest == nullptr) return read_sides("size", steps.height, steps.width);
    if (sides->size() > 1) refuse("size", R"(only "shortest_edge", or "height" and "width")");
    steps.shortest_side = side("size", *shortest);
  }
  void read_crop(PictureSteps& steps) const {
    if (find("crop_size") != nullptr) read_sides("crop_size", steps.crop_height, steps.crop_width);
  }
  void read_filter(PictureSteps& steps) const {
    const json::value* value = find("resample");
    if (value == nullptr) return;
    if (!value->is_int64() || value->get_int64() < 0 || value->get_int64() > 5)
      refuse("resample", "the number of a PIL filter, 0 to 5, such as 2 (bilinear) or 3 (bicubic)");
    steps.filter = static_cast<PictureFilter>(value->get_int64());
  }
  void read_colors(const char* key, std::array<double, 3>& to) const {
    const json::value* value = find(key);
    if (value == nullptr) return;
    const json::array* list = value->if_array();
    if (value->is_number()) {
      to.fill(value->to_number<double>());
      return;
    }
    if (list == nullptr || list->size() != 3 ||
        !std::ranges::all_of(*list, [](const json::value& x) { return x.is_number(); }))
      refuse(key, "three numbers, one per color");
    for (std::size_t c = 0; c < 3; ++c) to[c] = (*list)[c].to_number<double>();
  }

  const json::object& keys_;
  const std::filesystem::path& path_;
};

std::string size_text(std::int64_t height, std::int64_t width) {
  return concat(height, " x ", width);
}

std::int64_t half(std::int64_t difference) {
  return difference >= 0 ? difference / 2 : -((1 - difference) / 2);
}

Picture cropped(const Picture& picture, std::int64_t height, std::int64_t width) {
  Picture result = Picture::of_size(height, width);
  const std::int64_t top = half(picture.height - height), left = half(picture.width - width);
  const std::int64_t first = std::max<std::int64_t>(0, -left);
  const std::int64_t end = std::min(width, picture.width - left);
  for (std::int64_t y = 0; y < height; ++y) {
    const std::int64_t from = y + top;
    if (from < 0 || from >= picture.height || end <= first) continue;
    std::copy_n(picture.at(from, first + left), (end - first) * kColors, result.at(y, first));
  }
  return result;
}

bool is_ready(const NpyForm& form) {
  return form.number.is_floating() && form.shape.size() == 3 && form.shape[0] == kColors &&
         form.shape[2] != kColors;
}

bool is_array(const FilePart& path) { return read_picture_kind(path) == PictureKind::kNpy; }

}  // namespace

std::string PictureSteps::json() const {
  const auto sides = [](std::int64_t high, std::int64_t wide) {
    return json::object{{"height", high}, {"width", wide}};
  };
  json::object keys{{"image_processor_type", "ViTImageProcessor"},
                    {"do_resize", resizes},
                    {"size", sides(height, width)},
                    {"resample", narrow<int>(filter)},
                    {"do_center_crop", crops},
                    {"do_rescale", rescales},
                    {"rescale_factor", scale},
                    {"do_normalize", normalizes},
                    {"image_mean", json::array(mean.begin(), mean.end())},
                    {"image_std", json::array(deviation.begin(), deviation.end())}};
  if (shortest_side > 0) keys["size"] = json::object{{"shortest_edge", shortest_side}};
  if (crops) keys["crop_size"] = sides(crop_height, crop_width);
  return pretty_json(keys) + "\n";
}

PictureSteps read_picture_steps(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "preprocessor_config.json";
  if (!std::filesystem::exists(path))
    throw MissingInput(
        concat(path.native(),
               ": does not exist; it defines how images are converted to the model's input; "
               "transformers writes it with ViTImageProcessor().save_pretrained"));
  const json::value keys = read_json(path);
  if (!keys.is_object()) throw DataError(concat(path.native(), ": is not a JSON object"));
  return StepsReader(keys.get_object(), path).read();
}

PictureProcessor::PictureProcessor(const PictureSteps& steps, std::int64_t height,
                                   std::int64_t width)
    : steps_(steps), height_(height), width_(width) {
  const auto want = [&](std::int64_t got_height, std::int64_t got_width) {
    if (got_height == height && got_width == width) return;
    throw DataError(concat("preprocessor_config.json resizes pictures to ",
                           size_text(got_height, got_width), " pixels, but the model needs ",
                           size_text(height, width), "; want the same size in both"));
  };
  if (steps.crops) {
    want(steps.crop_height, steps.crop_width);
  } else if (steps.resizes && steps.shortest_side > 0) {
    throw DataError(concat(
        "preprocessor_config.json resizes only the shortest side, so images have different sizes, "
        "but the model needs ",
        size_text(height, width),
        R"(; want "do_center_crop": true with "crop_size", or "size" with "height" and "width")"));
  } else if (steps.resizes) {
    want(steps.height, steps.width);
  }
  for (std::size_t color = 0; color < values_.size(); ++color)
    for (std::size_t i = 0; i < values_[color].size(); ++i) {
      float value = static_cast<float>(i);
      if (steps.rescales) value = static_cast<float>(static_cast<double>(i) * steps.scale);
      if (steps.normalizes)
        value = (value - static_cast<float>(steps.mean[color])) /
                static_cast<float>(steps.deviation[color]);
      if (!std::isfinite(value))
        throw DataError(
            concat("preprocessor_config.json converts the pixel value ", i, " to ", value,
                   "; want finite numbers as rescale_factor, image_mean and image_std"));
      values_[color][i] = value;
    }
}

void PictureProcessor::check(const FilePart& path) const {
  if (is_array(path)) {
    const NpyForm array = read_npy_form(path);
    if (is_ready(array)) {
      if (array.shape[1] != height_ || array.shape[2] != width_)
        throw DataError(concat(path.native(), ": contains pixel values of 3 x ",
                               size_text(array.shape[1], array.shape[2]),
                               ", but the model needs 3 x ", size_text(height_, width_)));
      return;
    }
  }
  const PictureForm form = read_picture_form(path);
  if (steps_.resizes || steps_.crops) return;
  const bool fits = (form.height == height_ && form.width == width_) ||
                    (form.height == width_ && form.width == height_);  // EXIF may turn it
  if (!fits)
    throw DataError(concat(path.native(), ": has ", size_text(form.height, form.width),
                           " pixels, but the model needs ", size_text(height_, width_),
                           ", and preprocessor_config.json neither resizes nor crops"));
}

void PictureProcessor::write(const FilePart& path, std::span<float> to, bool mirrors) const {
  require(std::ssize(to) == values(), "the buffer must have the size of a picture's values");
  if (is_array(path) && is_ready(read_npy_form(path))) {
    check(path);
    const NpyArray array = read_npy(path);
    const std::int64_t pixels = height_ * width_;
    for (std::int64_t i = 0; i < pixels; ++i) {
      const std::int64_t column = mirrors ? width_ - 1 - i % width_ : i % width_;
      const std::int64_t from = i - i % width_ + column;
      for (std::int64_t c = 0; c < kColors; ++c) {
        const float value = array.values[static_cast<std::size_t>(c * pixels + from)];
        if (!std::isfinite(value))
          throw DataError(concat(path.native(), ": contains ", value, "; want finite numbers"));
        to[static_cast<std::size_t>(i * kColors + c)] = value;
      }
    }
    return;
  }
  Picture picture = read_picture(path);
  write(mirrors ? mirrored(std::move(picture)) : picture, to);
}

void PictureProcessor::write(const Picture& picture, std::span<float> to) const {
  const Picture shaped_picture = shaped(picture);
  if (shaped_picture.height != height_ || shaped_picture.width != width_)
    throw DataError(concat("a picture has ", size_text(shaped_picture.height, shaped_picture.width),
                           " pixels, but the model needs ", size_text(height_, width_)));
  for (std::size_t i = 0; i < shaped_picture.pixels.size(); ++i)
    to[i] = values_[i % kColors][shaped_picture.pixels[i]];
}

Picture PictureProcessor::shaped(const Picture& picture) const {
  const auto finished = [&](const Picture& sized) {
    return steps_.crops ? cropped(sized, steps_.crop_height, steps_.crop_width) : sized;
  };
  if (!steps_.resizes) return finished(picture);
  std::int64_t height = steps_.height, width = steps_.width;
  if (steps_.shortest_side > 0) {
    const bool is_upright = picture.width <= picture.height;
    const std::int64_t longest = std::max(picture.width, picture.height),
                       shortest = std::min(picture.width, picture.height);
    const auto side = static_cast<std::int64_t>(
        static_cast<double>(steps_.shortest_side * longest) / static_cast<double>(shortest));
    height = is_upright ? side : steps_.shortest_side;
    width = is_upright ? steps_.shortest_side : side;
  }
  constexpr std::int64_t kMaxResized = 1 << 25;
  if (height > kMaxResized / width)
    throw DataError(concat("preprocessor_config.json resizes a picture of ",
                           size_text(picture.height, picture.width), " pixels to ",
                           size_text(height, width), " before it is cropped; want at most ",
                           kMaxResized, " pixels, so crop the picture first"));
  return finished(resized(picture, height, width, steps_.filter));
}

}  // namespace hybrid_trainer
