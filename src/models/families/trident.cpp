#include "hybrid_trainer/nn/module_graph.h"
#include "src/models/families/families.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kEventKinds = TridentConfig::kEventKinds,
                       kPlumeKinds = TridentConfig::kPlumeKinds;

using graph::ModuleMaker;
using graph::Node;

void add_stage(std::vector<ModuleMaker>& modules, std::int64_t channels,
               const kernels::SpatialSizes& stride = {2, 2, 2}) {
  modules.push_back(
      graph::convolution({.outputs = channels, .window = graph::around(3, stride), .bias = false}));
  modules.push_back(graph::group_norm(channels % 32 == 0 ? channels / 32 : 1));
  modules.push_back(graph::activation(kernels::ActivationKind::kSilu));
}

ModuleMaker perceptron(std::int64_t inner, std::int64_t outputs) {
  return graph::sequence({graph::linear(inner), graph::activation(kernels::ActivationKind::kSilu),
                          graph::linear(outputs)});
}

graph::Transformer blocks(const ModelConfig& config, std::int64_t layers) {
  return {.layers = layers,
          .heads = static_cast<int>(config.heads),
          .intermediate_size = config.intermediate_size,
          .dropout = static_cast<float>(config.dropout)};
}

void add_video(std::vector<Node>& nodes, const ModelConfig& config) {
  const TridentConfig& sizes = config.trident;
  std::vector<ModuleMaker> stages;
  for (std::int64_t stage = 0; stage < sizes.video_stages; ++stage)
    add_stage(stages, sizes.video_width << stage);
  nodes.push_back(graph::input(
      "video", {sizes.frames, sizes.video_size, sizes.video_size, sizes.video_channels}));
  nodes.push_back(graph::part("video.cnn", "video",
                              graph::fragments(sizes.fragment_frames, graph::sequence(stages))));
  nodes.push_back(graph::part("video.tokens", "video.cnn",
                              graph::sequence({graph::linear(config.width), graph::positions()})));
}

void add_vision(std::vector<Node>& nodes, const ModelConfig& config) {
  const TridentConfig& sizes = config.trident;
  for (const std::string image : {"visible", "infrared"}) {
    const std::int64_t channels = image == "visible" ? sizes.visible_channels : 1;
    nodes.push_back(graph::input(image, {sizes.image_size, sizes.image_size, channels}));
    nodes.push_back(
        graph::part("vision." + image + ".patches", image,
                    graph::sequence({graph::patches(config.width, {sizes.patch, sizes.patch, 1}),
                                     graph::positions()})));
    nodes.push_back(graph::transformer("vision." + image + ".layers",
                                       "vision." + image + ".patches",
                                       blocks(config, sizes.vision_layers)));
  }
}

/// Adds convolutions that reduce the infrared image to the grid, and detection in each cell.
void add_plumes(std::vector<Node>& nodes, const ModelConfig& config) {
  const TridentConfig& sizes = config.trident;
  std::vector<ModuleMaker> stages;
  std::int64_t channels = sizes.plume_width;
  for (std::int64_t size = sizes.image_size; size > sizes.grid; size /= 2) {
    add_stage(stages, channels);
    if (channels < 16 * sizes.plume_width && size / 2 > sizes.grid) channels *= 2;
  }
  add_stage(stages, channels, {1, 1, 1});
  nodes.push_back(graph::part("plume.cnn", "infrared", graph::sequence(stages)));
  nodes.push_back(graph::part("plume.head", "plume.cnn", perceptron(channels, 5 + kPlumeKinds)));
  nodes.push_back(graph::part("plume.tokens", "plume.cnn",
                              graph::sequence({graph::tokens(), graph::linear(config.width)})));
}

/// Adds a temporal convolution with stride 2 over the moments, and a transformer.
void add_kinematics(std::vector<Node>& nodes, const ModelConfig& config) {
  const TridentConfig& sizes = config.trident;
  nodes.push_back(graph::input("kinematics", {sizes.kinematic_steps, sizes.kinematic_channels}));
  nodes.push_back(graph::part(
      "kinematics.convolution", "kinematics",
      graph::sequence(
          {graph::convolution({.outputs = config.width, .window = graph::around(5, {2, 1, 1})}),
           graph::activation(kernels::ActivationKind::kSilu), graph::positions()})));
  nodes.push_back(graph::transformer("kinematics.layers", "kinematics.convolution",
                                     blocks(config, sizes.kinematic_layers)));
}

void add_numbers(std::vector<Node>& nodes, const ModelConfig& config) {
  const TridentConfig& sizes = config.trident;
  nodes.push_back(graph::input("cooling", {sizes.cooling_samples}));
  nodes.push_back(
      graph::part("cooling.curve", "cooling",
                  graph::sequence({perceptron(config.width, config.width),
                                   graph::activation(kernels::ActivationKind::kSilu)})));
  nodes.push_back(graph::part("cooling.constant", "cooling.curve", graph::linear(1)));
  nodes.push_back(graph::part(
      "cooling.token", "cooling.curve",
      graph::sequence({graph::linear(config.width), graph::reshape({1, config.width})})));
  nodes.push_back(graph::input("geo", {sizes.geo_numbers}));
  nodes.push_back(graph::part("geo.token", "geo",
                              graph::sequence({perceptron(config.width, config.width),
                                               graph::reshape({1, config.width})})));
}

void add_events(std::vector<Node>& nodes, const ModelConfig& config) {
  nodes.push_back(graph::concatenate(
      "fusion.sensors", {"vision.visible.layers", "vision.infrared.layers", "plume.tokens",
                         "kinematics.layers", "cooling.token", "geo.token"}));
  nodes.push_back(graph::part("fusion.places", "fusion.sensors", graph::positions()));
  graph::Transformer fusion = blocks(config, config.trident.fusion_layers);
  fusion.source = "fusion.places";
  nodes.push_back(graph::transformer("fusion.layers", "video.tokens", fusion));
  nodes.push_back(graph::token_input("event_tokens", {config.context}));
  nodes.push_back(graph::part(
      "events.embedding", "event_tokens",
      graph::sequence({graph::embedding(config.vocabulary, config.width), graph::positions()})));
  graph::Transformer decoder = blocks(config, config.layers);
  decoder.causal = true;
  decoder.source = "fusion.layers";
  nodes.push_back(graph::transformer("events.layers", "events.embedding", decoder));
  nodes.push_back(
      graph::part("events.head", "events.layers", graph::linear(config.vocabulary, false)));
}

std::vector<Node> trident_nodes(const ModelConfig& config) {
  std::vector<Node> nodes;
  add_video(nodes, config);
  add_vision(nodes, config);
  add_plumes(nodes, config);
  add_kinematics(nodes, config);
  add_numbers(nodes, config);
  add_events(nodes, config);
  nodes.push_back(graph::cross_entropy("events", "events.head", "event_targets"));
  nodes.push_back(graph::detection("plumes", "plume.head", "plume_kinds", "plume_boxes",
                                   {.classes = kPlumeKinds}));
  nodes.push_back(graph::squared_error("constant", "cooling.constant", "cooling_constant"));
  return nodes;
}

std::unique_ptr<Network> trident_make(const ModelConfig& config, std::uint64_t seed,
                                      const Stream& stream) {
  return std::make_unique<ModuleGraph>(trident_nodes(config), seed, stream);
}

ModelConfig trident_resolved(const ModelConfig& given) {
  ModelConfig config = given;
  if (config.intermediate_size == 0) config.intermediate_size = 4 * config.width;
  if (config.vocabulary == 0) config.vocabulary = kEventKinds + 1;
  return config;
}

void trident_collect_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  const TridentConfig& sizes = config.trident;
  const auto divides = [&](const char* key, std::int64_t part, const char* of, std::int64_t whole) {
    if (part > 0 && whole % part != 0)
      problems.push_back(
          concat("model.", key, ": got ", part, ", which does not divide model.", of, " ", whole));
  };
  divides("heads", config.heads, "width", config.width);
  divides("trident.fragment_frames", sizes.fragment_frames, "trident.frames", sizes.frames);
  divides("trident.patch", sizes.patch, "trident.image_size", sizes.image_size);
  std::int64_t cells = sizes.image_size;
  while (cells > sizes.grid && cells % 2 == 0) cells /= 2;
  if (cells != sizes.grid || sizes.image_size < 4 * sizes.grid)
    problems.push_back(
        concat("model.trident.grid: got ", sizes.grid, " for images of ", sizes.image_size,
               " pixels, want model.trident.image_size divided by a power of two of at least 4"));
  if (config.vocabulary != 0 && config.vocabulary != kEventKinds + 1)
    problems.push_back(concat("model.vocabulary: got ", config.vocabulary, ", want ",
                              kEventKinds + 1,
                              ": one token per kind of event and a start token; leave it out"));
}

std::vector<ModelPreset> trident_presets() {
  const ModelConfig tiny{.family = "trident", .layers = 1, .heads = 4, .width = 64, .context = 8};
  ModelConfig large{.family = "trident", .layers = 8, .heads = 16, .width = 1024, .context = 64};
  large.trident = {.frames = 64,
                   .fragment_frames = 8,
                   .video_size = 224,
                   .video_channels = 1,
                   .video_stages = 4,
                   .video_width = 64,
                   .image_size = 224,
                   .visible_channels = 3,
                   .patch = 16,
                   .vision_layers = 7,
                   .grid = 14,
                   .plume_width = 64,
                   .kinematic_steps = 256,
                   .kinematic_channels = 12,
                   .kinematic_layers = 6,
                   .cooling_samples = 64,
                   .geo_numbers = 8,
                   .fusion_layers = 6,
                   .held_out = 256};
  return {{"trident-tiny", tiny, 32, tiny.context, "adamw", 2e-3, kEventKinds + 1},
          {"trident", large, 64, large.context, "adamw", 1e-4, kEventKinds + 1}};
}

}  // namespace

ModelFamily trident_family() {
  return {.name = "trident",
          .title = "TRIDENT",
          .keys = {"heads", "dropout", "intermediate_size", "trident"},
          .collect_problems = trident_collect_problems,
          .resolved = trident_resolved,
          .make = trident_make,
          .presets = trident_presets(),
          .is_language_model = false,
          .purpose = {.task = ""},
          .data = "",
          .fine_tuning = {.layout = ""},
          .adapted_parts = {"vision.*.layers.*", "kinematics.layers.*", "fusion.layers.*",
                            "events.layers.*"},
          .with_depth =
              [](ModelConfig config, std::int64_t depth) {
                config.layers = config.trident.vision_layers = config.trident.kinematic_layers =
                    config.trident.fusion_layers = depth;
                return config;
              },
          .shortened =
              [](ModelConfig config) {
                config.trident.frames = config.trident.fragment_frames;
                return config;
              }};
}

}  // namespace hybrid_trainer
