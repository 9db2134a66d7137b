#include <algorithm>

#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/nn/attention.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "hybrid_trainer/nn/module_graph.h"
#include "src/models/families/families.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kImageSize = 224, kPatchSize = 16, kImageColors = 3;
/// Of a model of which nobody says what it tells apart, as memory is planned for it.
constexpr std::int64_t kFewestClasses = 2;

std::int64_t classes_of(const ModelConfig& config) {
  return std::max(kFewestClasses, static_cast<std::int64_t>(config.vision.labels.size()));
}

/// A module whose one weight is called otherwise in files: "embeddings.cls_token", (1, rows, width).
graph::ModuleMaker with_name_in_files(graph::ModuleMaker make, const std::string& name) {
  return [make = std::move(make), name](const ModuleName& of, const Shape& input,
                                        const Stream& stream) {
    auto module = make(of, input, stream);
    module->visit_parameters([&](Parameter& parameter) {
      parameter.set_in_files({{.name = name,
                               .shape = Shape{1, parameter.shape()[0], parameter.shape()[1]},
                               .has_outer = true}});
    });
    return module;
  };
}

/// The head, whose weights lie beside the model's in files.
std::unique_ptr<Module> make_classifier(const ModuleName& name, std::int64_t width,
                                        std::int64_t classes, const Stream& stream) {
  auto head = std::make_unique<Linear>(name, width, classes, stream);
  head->visit_parameters([&](Parameter& parameter) {
    parameter.set_in_files({{parameter.name(), parameter.shape(), false, /*prefixed=*/false}});
  });
  return head;
}

LayerSpec vit_layer(const ModelConfig& config) {
  const Attention::Spec attention{
      .width = config.width,
      .heads = static_cast<int>(config.heads),
      .head_size = config.width / config.heads,
      .two_way = true,
      .files = {.first = {"attention.query", "attention.key", "attention.value"},
                .last = "output.dense"}};
  const FeedForward::Spec feed_forward{
      .width = config.width,
      .inner_width = config.inner_width,
      .exact_gelu = true,
      .files = {.first = {"intermediate.dense"}, .last = "output.dense"}};
  return {{.name = {"attn", "attention"},
           .norm = {"ln_1", "layernorm_before"},
           .make = branch_of<Attention>(attention)},
          {.name = {"mlp", ""},
           .norm = {"ln_2", "layernorm_after"},
           .make = branch_of<FeedForward>(feed_forward)}};
}

/// Pictures (B, size, size, 3) in patches, a token for the class before them, blocks of attention, and a
/// linear map of that token's channels to logits.
std::unique_ptr<Network> vit_make(const ModelConfig& config, std::uint64_t seed,
                                  const Stream& stream) {
  const std::int64_t size = config.vision.image_size, patch = config.vision.patch_size;
  graph::Stack stack{.layers = config.layers,
                     .layer = [config](const graph::LayerInputs&) { return vit_layer(config); },
                     .residual = {.norm = {.epsilon = static_cast<float>(config.norm_epsilon)}},
                     .block = {"h", "encoder.layer"},
                     .final_norm = ModuleName("ln_f", "layernorm")};
  if (config.initializer_range) stack.deviations = usual_deviations(config);
  const auto classifier = [classes = classes_of(config)](const ModuleName& name, const Shape& input,
                                                         const Stream& of) {
    return make_classifier(name, input[1], classes, of);
  };
  std::vector<graph::Node> nodes{
      graph::input("pixels", {size, size, kImageColors}),
      graph::part({"embeddings.patches", "embeddings.patch_embeddings.projection"}, "pixels",
                  graph::patches(config.width, {patch, patch, 1})),
      graph::part("embeddings.class_token", "embeddings.patches",
                  with_name_in_files(graph::class_tokens(), "embeddings.cls_token")),
      graph::part("embeddings.positions", "embeddings.class_token",
                  with_name_in_files(graph::positions(), "embeddings.position_embeddings")),
      graph::stack({"encoder", ""}, "embeddings.positions", stack),
      graph::part("first_token", "encoder", graph::token(0)),
      graph::part("classifier", "first_token", classifier),
      graph::cross_entropy("class", "classifier", "label")};
  return std::make_unique<ModuleGraph>(std::move(nodes), seed, stream);
}

ModelConfig vit_resolved(const ModelConfig& given) {
  ModelConfig config = given;
  const auto complete = [](std::int64_t& value, std::int64_t meant) {
    if (value == 0) value = meant;
  };
  complete(config.inner_width, 4 * config.width);
  complete(config.vision.image_size, kImageSize);
  complete(config.vision.patch_size, kPatchSize);
  return config;
}

void vit_collect_problems(const ModelConfig& given, std::vector<std::string>& problems) {
  const ModelConfig config = vit_resolved(given);
  if (config.heads > 0 && config.width % config.heads != 0)
    problems.push_back(concat("model.heads: got ", config.heads,
                              ", which does not divide model.width ", config.width));
  if (config.vision.image_size % config.vision.patch_size != 0)
    problems.push_back(concat("model.vision.patch_size: got ", config.vision.patch_size,
                              ", which does not divide model.vision.image_size ",
                              config.vision.image_size));
  if (config.vision.labels.size() == 1)
    problems.push_back(concat("model.vision.labels: got ", config.vision.labels.front().name,
                              " alone, want two classes or more"));
}

std::vector<ModelPreset> vit_presets() {
  const auto shape = [](std::int64_t layers, std::int64_t heads, std::int64_t width) {
    return ModelConfig{
        .family = "vit", .layers = layers, .heads = heads, .width = width, .norm_epsilon = 1e-12};
  };
  return {{"vit-tiny", shape(12, 3, 192), 16, 1, "adamw", 1e-3},
          {"vit-small", shape(12, 6, 384), 16, 1, "adamw", 5e-4},
          {"vit-base", shape(12, 12, 768), 16, 1, "adamw", 3e-4}};
}

using Fixed = HuggingFaceLayout::Fixed;

std::vector<Fixed> vit_derived_keys(const ModelConfig&) { return {}; }

std::vector<Fixed> vit_written_keys(const ModelConfig& config) {
  return {{"hidden_dropout_prob", {0.0}},
          {"attention_probs_dropout_prob", {0.0}},
          {"initializer_range", {config.initializer_range.value_or(0.02)}}};
}

HuggingFaceLayout vit_hugging_face() {
  return {.model_type = "vit",
          .architecture = "ViTForImageClassification",
          .prefix = "vit.",
          .members = {{"num_hidden_layers", &ModelConfig::layers, 12},
                      {"num_attention_heads", &ModelConfig::heads, 12},
                      {"hidden_size", &ModelConfig::width, 768},
                      {"intermediate_size", &ModelConfig::inner_width, 3072},
                      {"layer_norm_eps", &ModelConfig::norm_epsilon, 1e-12}},
          .fixed = {{"hidden_act", {std::string("gelu")}},
                    {"num_channels", {kImageColors}},
                    {"qkv_bias", {true}}},
          .derived = vit_derived_keys,
          .written = vit_written_keys,
          .tied_head = "",
          // Of a model without a head, and of one that fills in masked patches.
          .ignored = {"pooler.dense.weight", "pooler.dense.bias", "embeddings.mask_token"},
          .inert = {"encoder_stride", "pooler_act", "pooler_output_size", "tie_word_embeddings"},
          .classifier = "classifier."};
}

}  // namespace

ModelFamily vit_family() {
  return {.name = "vit",
          .title = "ViT",
          .keys = {"heads", "initializer_range", "inner_width", "norm_epsilon", "vision"},
          .collect_problems = vit_collect_problems,
          .resolved = vit_resolved,
          .make = vit_make,
          .presets = vit_presets(),
          .hugging_face = vit_hugging_face(),
          .is_of_language = false,
          .purpose = {"image-classification", "A model of pictures"},
          .data = "EXAMPLES",
          .fine_tuning = {.batch_size = 16, .learning_rate = 5e-5},
          .adapted_parts = {"encoder.*"},
          .frozen_parts = {"embeddings.*"},
          .with_depth = [](ModelConfig config, std::int64_t depth) {
            config.layers = depth;
            return config;
          }};
}

}  // namespace hybrid_trainer
