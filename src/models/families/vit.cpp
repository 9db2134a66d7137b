#include <algorithm>

#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/nn/attention.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "hybrid_trainer/nn/module_graph.h"
#include "src/models/families/families.h"
#include "src/models/hugging_face/labels.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kImageSize = 224, kPatchSize = 16, kImageColors = 3;
/// Number of classes for planning memory if the classes are unknown.
constexpr std::int64_t kMinClasses = 2;

std::int64_t classes_of(const ModelConfig& config) {
  return std::max(kMinClasses, static_cast<std::int64_t>(config.labels.size()));
}

/// Renames a module's only weight in files: "embeddings.cls_token", (1, rows, width).
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
      .bidirectional = true,
      .files = {.first = {"attention.query", "attention.key", "attention.value"},
                .last = "output.dense"}};
  const FeedForward::Spec feed_forward{
      .width = config.width,
      .intermediate_size = config.intermediate_size,
      .exact_gelu = true,
      .files = {.first = {"intermediate.dense"}, .last = "output.dense"}};
  return {{.name = {"attn", "attention"},
           .norm = {"ln_1", "layernorm_before"},
           .make = branch_of<Attention>(attention)},
          {.name = {"mlp", ""},
           .norm = {"ln_2", "layernorm_after"},
           .make = branch_of<FeedForward>(feed_forward)}};
}

/// Makes a network of images (B, size, size, 3): patches preceded by a class token, attention
/// blocks, and a linear map from the class token's channels to logits.
std::unique_ptr<Network> vit_make(const ModelConfig& config, std::uint64_t seed,
                                  const Stream& stream) {
  const std::int64_t size = config.vision.image_size, patch = config.vision.patch_size;
  graph::Stack stack{.layers = config.layers,
                     .layer = [config](const graph::LayerInputs&) { return vit_layer(config); },
                     .residual = {.norm = {.epsilon = static_cast<float>(config.norm_epsilon)}},
                     .block = {"h", "encoder.layer"},
                     .final_norm = ModuleName("ln_f", "layernorm")};
  if (config.initializer_range) stack.deviations = default_deviations(config);
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
  complete(config.intermediate_size, 4 * config.width);
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
  if (config.labels.size() == 1)
    problems.push_back(
        concat("model.labels: got ", config.labels.front().name, ", want two classes or more"));
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

void read_side(ConfigReader& reader, std::int64_t& to, const char* key, std::int64_t missing) {
  const json::value* value = reader.find(key);
  const json::array* sides = value == nullptr ? nullptr : value->if_array();
  if (sides == nullptr) return reader.read(to, key, static_cast<double>(missing));
  to = 1;
  const bool are_equal = sides->size() == 2 && (*sides)[0] == (*sides)[1] &&
                         (*sides)[0].is_int64() && (*sides)[0].get_int64() > 0;
  if (!are_equal)
    return reader.refuse(key, *value, "a whole number of at least 1, the same for both sides");
  to = (*sides)[0].get_int64();
}

void read_pictures(ConfigReader& reader, ModelConfig& model) {
  read_side(reader, model.vision.image_size, "image_size", kImageSize);
  read_side(reader, model.vision.patch_size, "patch_size", kPatchSize);
  model.labels = read_labels(reader);
  constexpr const char* kOneOfAll = "single_label_classification";
  const json::value* problem = reader.find("problem_type");
  if (problem != nullptr && *problem != json::value(kOneOfAll))
    reader.refuse("problem_type", *problem, concat('"', kOneOfAll, "\" or no such key"));
}

void write_pictures(json::object& config, const ModelConfig& model) {
  config["image_size"] = model.vision.image_size;
  config["patch_size"] = model.vision.patch_size;
  write_labels(config, model.labels);
}

void vit_keys(ConfigKeys& keys, ModelConfig& model) {
  keys.member("num_hidden_layers", model.layers, 12);
  keys.member("num_attention_heads", model.heads, 12);
  keys.member("hidden_size", model.width, 768);
  keys.member("intermediate_size", model.intermediate_size, 3072);
  keys.member("layer_norm_eps", model.norm_epsilon, 1e-12);
  if (!keys.fit(model)) return;
  if (ConfigReader* const reader = keys.reader()) {
    read_pictures(*reader, model);
  } else {
    write_pictures(keys.written(), model);
  }
  keys.inert({"encoder_stride", "pooler_act", "pooler_output_size", "tie_word_embeddings"});
  keys.fixed("hidden_act", {"gelu"});
  keys.fixed("num_channels", {kImageColors});
  keys.fixed("qkv_bias", {true});
  keys.write_only("hidden_dropout_prob", 0.0);
  keys.write_only("attention_probs_dropout_prob", 0.0);
  keys.write_only("initializer_range", model.initializer_range.value_or(0.02));
}

}  // namespace

ModelFamily vit_family() {
  return {.name = "vit",
          .title = "ViT",
          .keys = {"heads", "initializer_range", "intermediate_size", "norm_epsilon", "vision",
                   "labels"},
          .collect_problems = vit_collect_problems,
          .resolved = vit_resolved,
          .make = vit_make,
          .presets = vit_presets(),
          .hugging_face =
              HuggingFaceLayout{
                  .model_type = "vit",
                  .architecture = "ViTForImageClassification",
                  .prefix = "vit.",
                  .keys = vit_keys,
                  .tied_head = "",
                  // Weights of models without a head, and of masked patch prediction.
                  .ignored = {"pooler.dense.weight", "pooler.dense.bias", "embeddings.mask_token"},
                  .classifier = "classifier."},
          .is_language_model = false,
          .purpose = {"image-classification", "An image classifier", ""},
          .data = "EXAMPLES",
          .fine_tuning = {.layout = "", .batch_size = 16, .learning_rate = 5e-5},
          .adapted_parts = {"encoder.*"},
          .frozen_parts = {"embeddings.*"},
          .with_depth = with_layers};
}

}  // namespace hybrid_trainer
