#pragma once

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Sizes of trident's sensor inputs and the parts that process them. model.width, heads and
/// intermediate_size apply to all transformers, model.layers and context to the event decoder.
struct TridentConfig {
  static constexpr std::int64_t kEventKinds = 8, kPlumeKinds = 2;
  std::int64_t frames = 8;
  std::int64_t fragment_frames = 4;
  std::int64_t video_size = 16;
  std::int64_t video_channels = 1;
  std::int64_t video_stages = 2;
  std::int64_t video_width = 16;
  std::int64_t image_size = 32;
  std::int64_t visible_channels = 3;
  std::int64_t patch = 8;
  std::int64_t vision_layers = 1;
  std::int64_t grid = 4;
  std::int64_t plume_width = 16;
  std::int64_t kinematic_steps = 32;
  std::int64_t kinematic_channels = 4;
  std::int64_t kinematic_layers = 1;
  std::int64_t cooling_samples = 16;
  std::int64_t geo_numbers = 4;
  std::int64_t fusion_layers = 1;
  std::int64_t held_out = 4096;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"frames", self.frames, "Frames per video.", Range::between(2, 4096)});
    visit(Field{"fragment_frames", self.fragment_frames,
                "Frames per video fragment; must divide frames.", Range::between(1, 4096)});
    visit(Field{"video_size", self.video_size, "Height and width of a video frame in pixels.",
                Range::between(8, 4096)});
    visit(Field{"video_channels", self.video_channels, "Channels of a video frame.",
                Range::between(1, 64)});
    visit(Field{"video_stages", self.video_stages,
                "Number of 3-D convolution stages. Each halves all sizes, and all but the first "
                "double the channels.",
                Range::between(1, 10)});
    visit(Field{"video_width", self.video_width, "Channels of the first 3-D convolution stage.",
                Range::between(1, 65536)});
    visit(Field{"image_size", self.image_size,
                "Height and width of the visible and the infrared image in pixels.",
                Range::between(8, 8192)});
    visit(Field{"visible_channels", self.visible_channels, "Channels of the visible image.",
                Range::between(1, 64)});
    visit(Field{
        "patch", self.patch,
        "Height and width of the vision transformers' patches in pixels; must divide image_size.",
        Range::between(1, 1024)});
    visit(Field{"vision_layers", self.vision_layers, "Blocks per vision transformer.",
                Range::between(1, 1000)});
    visit(Field{"grid", self.grid,
                "Rows and columns of the grid in which plumes are detected; image_size must be "
                "this times a power of two.",
                Range::between(1, 1024)});
    visit(Field{"plume_width", self.plume_width,
                "Channels of the plume detector's first convolution. Each convolution halves "
                "height and width and doubles the channels, up to 16 times this number.",
                Range::between(1, 65536)});
    visit(Field{"kinematic_steps", self.kinematic_steps, "Time steps of the kinematics.",
                Range::between(16, 1 << 20)});
    visit(Field{"kinematic_channels", self.kinematic_channels,
                "Kinematic measurements per time step.", Range::between(1, 4096)});
    visit(Field{"kinematic_layers", self.kinematic_layers,
                "Transformer blocks after the temporal convolution.", Range::between(1, 1000)});
    visit(Field{"cooling_samples", self.cooling_samples, "Samples per cooling curve.",
                Range::between(3, 65536)});
    visit(Field{"geo_numbers", self.geo_numbers, "Numbers that describe a location.",
                Range::between(2, 4096)});
    visit(Field{"fusion_layers", self.fusion_layers,
                "Blocks in which the video tokens attend to the tokens of all other sensors.",
                Range::between(1, 1000)});
    visit(Field{"held_out", self.held_out, "Number of random scenes for validation.",
                Range::between(1, 1 << 24)});
  }
};

/// Columns and scaling of a time series model's table.
struct SeriesConfig {
  std::int64_t channels = 0;
  std::string scale{};

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"channels", self.channels,
                "Number of measurement columns; 0 uses the number in data.columns.",
                Range::between(0, 65536)});
    visit(Field{"scale", self.scale,
                "Mean and standard deviation for scaling each column, then the target, such as "
                "8/5.4,3/1. Empty computes them from the training rows, and the run stores them."});
  }
};

/// Additional sizes of Gemma 4, which a model folder sets.
struct Gemma4Config {
  std::int64_t head_size = 0;      // head size of layers without a window
  std::int64_t kv_heads = 0;       // key/value heads of layers without a window
  bool keys_are_values = false;    // layers without a window use their keys as values
  std::int64_t shared_layers = 0;  // number of last layers, which reuse earlier keys and values
  bool has_wide_shared_layers = false;  // shared layers have perceptrons of twice the width
  std::int64_t input_width = 0;         // channels of the per-layer inputs; 0: none
  std::int64_t input_rows = 0;          // rows of the per-layer inputs' table; 0: vocabulary

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(constant("head_size", self.head_size, Range::between(0, 1024)));
    visit(constant("kv_heads", self.kv_heads, Range::between(0, 1024)));
    visit(constant("keys_are_values", self.keys_are_values));
    visit(constant("shared_layers", self.shared_layers, Range::between(0, 999)));
    visit(constant("has_wide_shared_layers", self.has_wide_shared_layers));
    visit(constant("input_width", self.input_width, Range::between(0, 65536)));
    visit(constant("input_rows", self.input_rows, Range::between(0, 1 << 24)));
  }
};

/// A class of images or texts. JSON list `model.labels`.
struct ClassLabel {
  std::string name{};
  bool operator==(const ClassLabel&) const = default;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"name", self.name, "Name of the class."});
  }
};

/// Settings of an image classifier.
struct VisionConfig {
  std::int64_t image_size = 0;
  std::int64_t patch_size = 0;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"image_size", self.image_size,
                "Height and width of the model's input images in pixels; 0 uses 224.",
                Range::between(0, 1 << 14)});
    visit(Field{"patch_size", self.patch_size,
                "Height and width of a patch in pixels; each patch becomes a token. 0 uses 16.",
                Range::between(0, 1 << 14)});
  }
};

}  // namespace hybrid_trainer
