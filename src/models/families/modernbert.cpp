#include <algorithm>

#include "hybrid_trainer/models/config_keys.h"
#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/nn/attention.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "src/models/families/decoder_parts.h"
#include "src/models/families/families.h"
#include "src/models/hugging_face/config_reader.h"
#include "src/models/hugging_face/layer_keys.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kWindows = "aww";
constexpr double kGlobalTheta = 160000, kLocalTheta = 10000;

/// The first layer has no norm before attention, because the embedding is normed.
LayerSpec layer_of(const ModelConfig& config, std::int64_t window, bool is_first,
                   const std::shared_ptr<RotaryTable>& angles) {
  Attention::Spec attention = attention_of(config, window, angles);
  attention.bidirectional = true;
  attention.files = {.first = {"Wqkv"}, .last = "Wo"};
  const GatedFeedForward::Spec feed_forward{.width = config.width,
                                            .intermediate_size = config.intermediate_size,
                                            .biases = false,
                                            .gate = kernels::Gate::kExactGelu,
                                            .files = {.first = {"Wi"}, .last = "Wo"}};
  return {{.name = "attn",
           .norm = is_first ? ModuleName("") : ModuleName("ln_1", "attn_norm"),
           .make = branch_of<Attention>(attention)},
          {.name = "mlp",
           .norm = {"ln_2", "mlp_norm"},
           .make = branch_of<GatedFeedForward>(feed_forward)}};
}

/// Returns one letter per layer: w with a window, a without.
std::string letters_of(const ModelConfig& config) {
  return repeated(config.window > 0 ? config.window_layers : "a", config.layers);
}

/// Returns the letters of all layers, with an uppercase letter for the first layer.
std::string letters_with_first(const ModelConfig& config) {
  std::string pattern = letters_of(config);
  pattern.front() = pattern.front() == 'w' ? 'W' : 'A';
  return pattern;
}

ModelConfig modernbert_resolved(const ModelConfig& given) {
  ModelConfig config = given;
  if (config.intermediate_size == 0) config.intermediate_size = 3 * config.width / 2;
  if (config.window_layers.empty()) config.window_layers = kWindows;
  if (config.window_rope_theta == 0) config.window_rope_theta = kLocalTheta;
  return config;
}

std::unique_ptr<LanguageModel> modernbert_make(const ModelConfig& given, std::uint64_t seed,
                                               const Stream& stream) {
  ModelConfig config = modernbert_resolved(given);
  resolve_attention(config);
  const NormSpec norm{NormKind::kLayerWithoutBias, static_cast<float>(config.norm_epsilon)};
  const auto table = [&](double theta) {
    return std::make_shared<RotaryTable>(theta, RotaryScaling{}, config.context, config.head_size);
  };
  const auto angles = table(config.rope_theta), of_windows = table(config.window_rope_theta);
  std::map<char, LayerSpec> kinds;
  for (const bool is_first : {true, false}) {
    kinds[is_first ? 'A' : 'a'] = layer_of(config, 0, is_first, angles);
    kinds[is_first ? 'W' : 'w'] = layer_of(config, config.window, is_first, of_windows);
  }
  const auto transform = [&](const std::string& name) {
    return HeadTransform::Spec{.width = config.width,
                               .dense = {name + ".dense", "head.dense"},
                               .bias = false,
                               .norm = {name + ".norm", "head.norm"},
                               .norm_kind = norm};
  };
  const DecoderSpec spec{
      .residual = {config.width, norm, static_cast<float>(config.dropout)},
      .kinds = std::move(kinds),
      .pattern = letters_with_first(config),
      .rotary = {angles, of_windows},
      .embedding_norm = true,
      .head_bias = DecoderSpec::Bias::kTrained,
      .head_transform = transform("lm_head"),
      .deviations = default_deviations(config),
      .text_head =
          TextHead::Spec{.transform = transform("head"), .head = "classifier", .head_bias = true},
      .files = {.layers = "layers",
                .tokens = "embeddings.tok_embeddings",
                .final_norm = "final_norm",
                .embedding_norm = "embeddings.norm",
                .head_bias = "decoder.bias"}};
  return std::make_unique<Decoder>(given, spec, seed, stream);
}

void modernbert_collect_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  collect_direction_problem(config, problems);
  if (config.heads < 1) return;
  if (collect_head_size_problem(config, problems)) return;
  const std::int64_t head_size = config.width / config.heads;
  if (head_size < 2 || head_size % 2 != 0)
    problems.push_back(concat("model.heads: got ", config.heads, ", which gives heads of ",
                              head_size, " channels, want an even number: positions rotate pairs"));
  if (!config.window_layers.empty())
    collect_pattern_problems("model.window_layers", config.window_layers, window_letters("wa"),
                             config.layers, problems);
}

constexpr const char *kPeriod = "global_attn_every_n_layers", *kTypes = "layer_types";

std::string letters_of_period(std::int64_t period, std::int64_t layers) {
  std::string letters;
  for (std::int64_t i = 0; i < layers; ++i) letters += i % period == 0 ? 'a' : 'w';
  return letters;
}

/// Reads the window: local_attention tokens on both sides together, in all layers except every
/// n-th.
void read_windows(ConfigReader& reader, ModelConfig& model) {
  std::int64_t period = 3, local = 128;
  reader.read(period, kPeriod, 3);
  reader.read(local, "local_attention", 128);
  std::string letters = letters_of_period(period, model.layers);
  if (const json::value* types = reader.find(kTypes))
    letters = letters_of_layers(reader, *types, model.layers,
                                {{"full_attention", 'a'}, {"sliding_attention", 'w'}});
  const bool has_windows = letters.find('w') != std::string::npos;
  model.window = has_windows ? local / 2 + 1 : 0;
  if (has_windows) model.window_layers = period_of(letters);
}

void write_windows(json::object& config, const ModelConfig& model) {
  const std::string letters = letters_of(model);
  std::int64_t period = 1;
  while (period < model.layers && letters != letters_of_period(period, model.layers)) ++period;
  if (letters != letters_of_period(period, model.layers))
    throw DataError(concat(
        "a folder of a modernbert model cannot store model.window_layers=", model.window_layers,
        ": there, every n-th layer has no window; want ", "a pattern such as ", kWindows));
  config[kPeriod] = period;
  config["local_attention"] = model.window > 0 ? 2 * (model.window - 1) : 128;
}

void modernbert_keys(ConfigKeys& keys, ModelConfig& model) {
  model.bidirectional = true;
  keys.member("num_hidden_layers", model.layers);
  keys.member("num_attention_heads", model.heads);
  keys.member("hidden_size", model.width);
  keys.member("intermediate_size", model.intermediate_size, 1152);
  keys.member("vocab_size", model.vocabulary);
  keys.member("max_position_embeddings", model.context, 8192);
  keys.member("norm_eps", model.norm_epsilon, 1e-5);
  if (!keys.fit(model)) return;
  rotary_keys(keys, model,
              {.theta = kGlobalTheta,
               .windows_have_own = true,
               .theta_key = "global_rope_theta",
               .window_theta_key = "local_rope_theta"});
  if (ConfigReader* const reader = keys.reader()) {
    if (model.rope_scaling.type != "default")
      reader->problem(concat("rope_scaling: got ", model.rope_scaling.type,
                             ", but ModernBERT's angles are not scaled; want default"));
    read_windows(*reader, model);
  } else {
    write_windows(keys.written(), model);
    if (!model.labels.empty()) keys.written()["classifier_pooling"] = model.pooling;
  }
  keys.inert({"classifier_pooling", "deterministic_flash_attn", "gradient_checkpointing",
              "initializer_cutoff_factor", "reference_compile", "repad_logits_with_grad",
              "sparse_pred_ignore_index", "sparse_prediction"});
  for (const char* key : {"hidden_activation", "classifier_activation"}) keys.fixed(key, {"gelu"});
  for (const char* key : {"attention_bias", "mlp_bias", "norm_bias", "classifier_bias"})
    keys.fixed(key, {false});
  keys.fixed("decoder_bias", {true});
  keys.fixed("tie_word_embeddings", {true});
  keys.write_only("embedding_dropout", model.dropout);
  keys.write_only("mlp_dropout", 0.0);
  // transformers' defaults exceed small vocabularies.
  for (const char* key : {"pad_token_id", "cls_token_id", "sep_token_id"})
    keys.write_only(key, nullptr);
  written_of_attention(keys, model);
}

std::vector<ModelPreset> modernbert_presets() {
  const auto shape = [](std::int64_t layers, std::int64_t heads, std::int64_t width,
                        std::int64_t intermediate_size) {
    return ModelConfig{.family = "modernbert",
                       .layers = layers,
                       .heads = heads,
                       .width = width,
                       .context = 8192,
                       .intermediate_size = intermediate_size,
                       .rope_theta = kGlobalTheta,
                       .window = 65,
                       .bidirectional = true};
  };
  return {{"modernbert-base", shape(22, 12, 768, 1152), 4, 128, "adamw", 1e-4, 50368},
          {"modernbert-large", shape(28, 16, 1024, 2624), 4, 128, "adamw", 1e-4, 50368}};
}

}  // namespace

ModelFamily modernbert_family() {
  return {.name = "modernbert",
          .title = "ModernBERT",
          .keys = {"heads", "dropout", "initializer_range", "intermediate_size", "norm_epsilon",
                   "rope_theta", "window", "window_layers", "window_rope_theta", "bidirectional"},
          .collect_problems = modernbert_collect_problems,
          .resolved = modernbert_resolved,
          .make = modernbert_make,
          .presets = modernbert_presets(),
          .hugging_face = HuggingFaceLayout{.model_type = "modernbert",
                                            .architecture = "ModernBertForMaskedLM",
                                            .prefix = "model.",
                                            .keys = modernbert_keys,
                                            .tied_head = "embeddings.tok_embeddings.weight",
                                            .has_window_key = true,
                                            .head = {"head.", "decoder."},
                                            .head_copies = {{"decoder.weight", ""}}},
          .gguf = GgufLayout{.architecture = "modern-bert"},
          .purpose = {"fill-mask", "A masked language model", ""}};
}

}  // namespace hybrid_trainer
