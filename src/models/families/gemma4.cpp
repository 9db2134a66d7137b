#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "src/models/families/decoder_parts.h"
#include "src/models/families/families.h"
#include "src/models/families/gemma4_layers.h"
#include "src/models/hugging_face/config_reader.h"
#include "src/models/hugging_face/layer_keys.h"

namespace hybrid_trainer {

namespace {

namespace json = boost::json;

constexpr const char *kFullLayer = "full_attention", *kSlidingLayer = "sliding_attention";
constexpr std::int64_t kGemma4Period = 6;  // every sixth layer has no window

/// Returns a letter for each layer: w with a window, a without. The last layer has none.
std::string default_gemma4_letters(std::int64_t layers) {
  std::string letters;
  for (std::int64_t i = 1; i <= layers; ++i)
    letters += i % kGemma4Period == 0 || i == layers ? 'a' : 'w';
  return letters;
}

/// Returns a letter for each layer; the last one has no window, as in transformers.
std::string gemma4_letters(const ModelConfig& config) {
  std::string letters;
  for (std::int64_t i = 0; i < config.layers; ++i)
    letters += kind_of_layer(config.window_layers, i);
  letters.back() = 'a';
  return letters;
}

/// Returns the number of layers before those that read shared keys.
std::int64_t layers_with_keys(const ModelConfig& config) {
  return std::max<std::int64_t>(config.layers - config.gemma4.shared_layers, 0);
}

/// Returns the layer whose keys and values the last layers of a kind read; npos if there is none.
std::size_t layer_to_share(const std::string& letters, char kind, const ModelConfig& config) {
  return letters.substr(0, static_cast<std::size_t>(layers_with_keys(config))).rfind(kind);
}

/// Returns a letter for each layer: w or a if it computes keys and values, W or A if later layers
/// also read these, v or b if it reads those of an earlier layer.
std::string gemma4_pattern(const ModelConfig& config) {
  const std::string letters = gemma4_letters(config);
  std::string pattern = letters;
  for (std::int64_t i = layers_with_keys(config); i < config.layers; ++i) {
    char& letter = pattern[static_cast<std::size_t>(i)];
    const std::size_t shared = layer_to_share(letters, letter, config);
    if (shared == std::string::npos) continue;  // a shortened model, as in a plan
    pattern[shared] = letter == 'w' ? 'W' : 'A';
    letter = letter == 'w' ? 'v' : 'b';
  }
  return pattern;
}

ModelConfig resolved_gemma4(const ModelConfig& given) {
  ModelConfig config = given;
  resolve_attention(config);
  resolve_intermediate_size(config);
  if (config.window_layers.empty())
    config.window_layers = period_of(default_gemma4_letters(config.layers));
  if (config.window_rope_theta == 0) config.window_rope_theta = 1e4;
  Gemma4Config& own = config.gemma4;
  if (own.head_size == 0) own.head_size = config.head_size;
  if (own.kv_heads == 0) own.kv_heads = config.kv_heads;
  if (own.input_width > 0 && own.input_rows == 0) own.input_rows = config.vocabulary;
  return config;
}

/// Tables of the angles in layers with and without a window, and the inputs of all layers.
struct Gemma4Parts {
  std::shared_ptr<RotaryTable> of_windows, of_all;
  std::shared_ptr<Gemma4Inputs> inputs;
};

Gemma4Parts gemma4_parts(const ModelConfig& config, const Stream& stream) {
  const Gemma4Config& own = config.gemma4;
  return {
      .of_windows = std::make_shared<RotaryTable>(config.window_rope_theta, RotaryScaling{},
                                                  config.context, config.head_size),
      .of_all = std::make_shared<RotaryTable>(config.rope_theta, RotaryScaling{}, config.context,
                                              own.head_size, false, config.rotary_share),
      .inputs = std::make_shared<Gemma4Inputs>(
          Gemma4Inputs::Spec{.layers = config.layers,
                             .width = config.width,
                             .input_width = own.input_width,
                             .rows = own.input_rows,
                             .epsilon = static_cast<float>(config.norm_epsilon),
                             .window_columns = 2 * config.kv_heads * config.head_size,
                             .full_columns = 2 * own.kv_heads * own.head_size},
          stream)};
}

Gemma4Attention::Spec gemma4_attention(const ModelConfig& config, bool has_window,
                                       const Gemma4Parts& parts) {
  const Gemma4Config& own = config.gemma4;
  const std::int64_t keys = has_window ? config.kv_heads : own.kv_heads;
  Gemma4Attention::Spec spec{.width = config.width,
                             .heads = {static_cast<int>(config.heads), static_cast<int>(keys)},
                             .head_size = has_window ? config.head_size : own.head_size,
                             .biases = config.attention_bias,
                             .keys_are_values = own.keys_are_values && !has_window,
                             .norm = {static_cast<float>(config.norm_epsilon)},
                             .rotary = has_window ? parts.of_windows : parts.of_all,
                             .shared = parts.inputs->shared_keys(has_window)};
  if (has_window) spec.heads.window = config.window;
  return spec;
}

LayerSpec gemma4_layer(const ModelConfig& config, const Gemma4Attention::Spec& attention,
                       const Gemma4Parts& parts) {
  const bool is_wide =
      config.gemma4.has_wide_shared_layers && attention.keys == Gemma4Attention::Keys::kRead;
  const GatedFeedForward::Spec feed_forward{
      .width = config.width,
      .intermediate_size = (is_wide ? 2 : 1) * config.intermediate_size,
      .biases = false,
      .gate = kernels::Gate::kGelu,
      .files = {.first = {"gate_proj", "up_proj"}, .last = "down_proj"}};
  const Gemma4LayerEnd::Spec end{.width = config.width,
                                 .epsilon = static_cast<float>(config.norm_epsilon),
                                 .inputs = parts.inputs};
  return {{.name = {"attn", "self_attn"},
           .norm = {"ln_1", "input_layernorm"},
           .last_norm = ModuleName("ln_3", "post_attention_layernorm"),
           .make = branch_of<Gemma4Attention>(attention)},
          {.name = "mlp",
           .norm = {"ln_2", "pre_feedforward_layernorm"},
           .last_norm = ModuleName("ln_4", "post_feedforward_layernorm"),
           .make = branch_of<GatedFeedForward>(feed_forward)},
          {.name = {"end", ""}, .norm = "", .make = branch_of<Gemma4LayerEnd>(end)}};
}

DecoderSpec gemma4_spec(const ModelConfig& config, const Stream& stream) {
  using Keys = Gemma4Attention::Keys;
  const Gemma4Parts parts = gemma4_parts(config, stream);
  std::map<char, LayerSpec> kinds;
  for (const auto& [letters, keys] : std::map<std::string, Keys>{
           {"wa", Keys::kOwn}, {"WA", Keys::kOwnAndShared}, {"vb", Keys::kRead}}) {
    for (const bool has_window : {true, false}) {
      Gemma4Attention::Spec attention = gemma4_attention(config, has_window, parts);
      attention.keys = keys;
      kinds.emplace(letters[has_window ? 0 : 1], gemma4_layer(config, attention, parts));
    }
  }
  return {.residual = {config.width,
                       {NormKind::kRootMeanSquare, static_cast<float>(config.norm_epsilon)}},
          .kinds = kinds,
          .pattern = gemma4_pattern(config),
          .rotary = {parts.of_all, parts.of_windows},
          .embedding_scale = std::sqrt(static_cast<double>(config.width)),
          .logit_cap = static_cast<float>(config.logit_cap),
          .tied_head = config.tied_head,
          .deviations = default_deviations(config),
          .files = {.layers = "layers", .tokens = "embed_tokens", .final_norm = "norm"},
          .layer_inputs = parts.inputs};
}

void collect_gemma4_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  if (config.heads < 1 || collect_head_size_problem(config, problems)) return;
  const ModelConfig whole = resolved_gemma4(config);
  const Gemma4Config& own = whole.gemma4;
  collect_kv_head_problem(whole, problems);
  if (whole.heads % own.kv_heads != 0)
    problems.push_back(concat("model.gemma4.kv_heads: got ", own.kv_heads,
                              ", which does not divide model.heads ", whole.heads));
  for (const auto& [key, size] : {std::pair("model.head_size", whole.head_size),
                                  std::pair("model.gemma4.head_size", own.head_size)})
    if (size < 2 || size % 2 != 0)
      problems.push_back(
          concat(key, ": got ", size, ", want an even number: positions rotate pairs of channels"));
  if (own.kv_heads != whole.kv_heads && !own.keys_are_values)
    problems.push_back(concat("model.gemma4.kv_heads: got ", own.kv_heads, ", want ",
                              whole.kv_heads, ", model.kv_heads, unless keys are also values"));
  if (own.input_width > 0 && own.input_rows < whole.vocabulary)
    problems.push_back(concat("model.gemma4.input_rows: got ", own.input_rows,
                              ", want at least model.vocabulary, ", whole.vocabulary));
  if (!config.window_layers.empty())
    collect_pattern_problems("model.window_layers", config.window_layers, window_letters(),
                             config.layers, problems);
}

/// Reads or writes a count that may be 0.
void count_key(ConfigKeys& keys, const std::string& key, std::int64_t& value, double missing) {
  ConfigReader* const reader = keys.reader();
  const json::value* const found = reader == nullptr ? nullptr : reader->find(key);
  if (found != nullptr && *found == json::value(0)) {
    value = 0;
  } else {
    keys.member(key, value, missing);
  }
}

/// Reads one layer type's rope_parameters.
void read_angles(ConfigReader& reader, const json::object* parameters, const char* layers,
                 double& theta, double* share) {
  const json::value* const found =
      parameters == nullptr ? nullptr : parameters->if_contains(layers);
  if (found == nullptr || !found->is_object()) return;
  ConfigReader inner(found->get_object(), concat("rope_parameters.", layers, "."));
  inner.read(theta, "rope_theta", theta);
  const json::value* const type = inner.find("rope_type|type");
  const bool is_proportional = type != nullptr && *type == "proportional" && share != nullptr;
  if (share != nullptr) *share = 1;
  if (is_proportional) {
    inner.read(*share, "partial_rotary_factor", 1);
    inner.expect("factor", {1.0, 1});
  } else if (type != nullptr && *type != "default") {
    inner.refuse("rope_type", *type,
                 share == nullptr ? "\"default\"" : "\"default\" or \"proportional\"");
  }
  inner.know("partial_rotary_factor");
  inner.sort_unread();
  reader.add(inner);
}

void angle_keys(ConfigKeys& keys, ModelConfig& model) {
  if (ConfigReader* const reader = keys.reader()) {
    model.rope_theta = 1e6;
    model.window_rope_theta = 1e4;
    const json::object* const parameters = reader->find_object("rope_parameters");
    model.rotary_share = parameters == nullptr ? 0.25 : 1;
    read_angles(*reader, parameters, kFullLayer, model.rope_theta, &model.rotary_share);
    return read_angles(*reader, parameters, kSlidingLayer, model.window_rope_theta, nullptr);
  }
  keys.written()["rope_parameters"] = json::object{
      {kFullLayer, json::object{{"rope_type", "proportional"},
                                {"partial_rotary_factor", model.rotary_share},
                                {"rope_theta", model.rope_theta}}},
      {kSlidingLayer,
       json::object{{"rope_type", "default"}, {"rope_theta", model.window_rope_theta}}}};
}

/// Adds a problem if there are no keys and values that the last layers can read.
void check_shared_layers(ConfigReader& reader, const ModelConfig& model,
                         const std::string& letters) {
  const std::int64_t first = layers_with_keys(model);
  if (first == 0)
    return reader.problem(concat("num_kv_shared_layers: got ", model.gemma4.shared_layers,
                                 ", want less than num_hidden_layers, ", model.layers));
  for (std::int64_t i = first; i < model.layers; ++i)
    if (layer_to_share(letters, letters[static_cast<std::size_t>(i)], model) == std::string::npos)
      return reader.problem(concat("num_kv_shared_layers: got ", model.gemma4.shared_layers,
                                   ", but no layer before layer ", first, " has the type of layer ",
                                   i));
}

void window_layer_keys(ConfigKeys& keys, ModelConfig& model) {
  if (ConfigReader* const reader = keys.reader()) {
    reader->read(model.window, "sliding_window", 512);
    std::string letters = default_gemma4_letters(model.layers);
    if (const json::value* const types = reader->find("layer_types"))
      letters = letters_of_layers(*reader, *types, model.layers,
                                  {{kFullLayer, 'a'}, {kSlidingLayer, 'w'}});
    letters.back() = 'a';
    model.window_layers = period_of(letters);
    return check_shared_layers(*reader, model, letters);
  }
  json::array types;
  for (const char letter : gemma4_letters(model))
    types.emplace_back(letter == 'w' ? kSlidingLayer : kFullLayer);
  keys.written()["sliding_window"] = model.window > 0 ? model.window : model.context;
  keys.written()["layer_types"] = types;
}

/// Returns the layer of a key such as "05"; -1 for other keys.
std::int64_t layer_of_key(std::string_view key, std::int64_t layers) {
  std::int64_t layer = -1;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), layer);
  const bool is_number = error == std::errc() && end == key.data() + key.size();
  return is_number && layer < layers ? layer : -1;
}

/// Reads per_layer_config, which transformers 5.24 writes in place of global_head_dim and
/// num_global_key_value_heads. All layers of a type must have the same sizes.
void read_layer_sizes(ConfigReader& reader, ModelConfig& model, const json::object& layers) {
  using Sizes = std::pair<std::int64_t, std::int64_t>;  // channels of a head, heads of keys
  const Sizes usual{model.head_size, model.kv_heads};
  std::vector<Sizes> found(static_cast<std::size_t>(model.layers), usual);
  for (const auto& [key, value] : layers) {
    const std::int64_t layer = layer_of_key(key, model.layers);
    if (layer < 0 || !value.is_object()) {
      reader.refuse("per_layer_config", layers,
                    concat("objects under layers from 0 to ", model.layers - 1));
      return;
    }
    ConfigReader inner(value.get_object(), concat("per_layer_config.", std::string(key), "."));
    auto& [head_size, kv_heads] = found[static_cast<std::size_t>(layer)];
    inner.read(head_size, "head_dim", static_cast<double>(head_size));
    inner.read(kv_heads, "num_key_value_heads", static_cast<double>(kv_heads));
    for (const auto& [name, size] : value.get_object())
      if (!inner.known().contains(name)) inner.refuse(std::string(name), size, "no such key");
    reader.add(inner);
  }
  const Sizes full = found.back();  // the last layer has no window
  std::tie(model.gemma4.head_size, model.gemma4.kv_heads) = full;
  const std::string letters = gemma4_letters(model);
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i] != (letters[i] == 'w' ? usual : full))
      return reader.problem(concat("per_layer_config: layer ", i, " has ", found[i].second,
                                   " heads of ", found[i].first,
                                   " channels, want the sizes of the other layers of its type"));
}

/// Keys for the sizes of layers without a window.
void layer_size_keys(ConfigKeys& keys, ModelConfig& model) {
  Gemma4Config& own = model.gemma4;
  ConfigReader* const reader = keys.reader();
  if (reader == nullptr) {
    keys.written()["global_head_dim"] = own.head_size;
    keys.written()["num_global_key_value_heads"] =
        own.keys_are_values ? json::value(own.kv_heads) : json::value();
    return;
  }
  reader->read(own.head_size, "global_head_dim", 512);
  reader->read_nullable(own.kv_heads, "num_global_key_value_heads", 0);
  if (!own.keys_are_values || own.kv_heads == 0) own.kv_heads = model.kv_heads;
  if (const json::object* const layers = reader->find_object("per_layer_config"))
    read_layer_sizes(*reader, model, *layers);
}

void gemma4_keys(ConfigKeys& keys, ModelConfig& model) {
  Gemma4Config& own = model.gemma4;
  keys.member("num_hidden_layers", model.layers);
  keys.member("num_attention_heads", model.heads);
  keys.member("hidden_size", model.width);
  keys.member("vocab_size", model.vocabulary);
  keys.member("max_position_embeddings", model.context, 131072);
  keys.member("intermediate_size", model.intermediate_size);
  keys.member("num_key_value_heads", model.kv_heads, 4);
  keys.member("head_dim", model.head_size, 256);
  keys.member("rms_norm_eps", model.norm_epsilon, 1e-6);
  keys.member("tie_word_embeddings", model.tied_head, 1);
  keys.member("attention_bias", model.attention_bias, 0);
  keys.nullable("final_logit_softcapping", model.logit_cap, 0);
  keys.member("attention_k_eq_v", own.keys_are_values, 0);
  keys.member("use_double_wide_mlp", own.has_wide_shared_layers, 0);
  count_key(keys, "num_kv_shared_layers", own.shared_layers, 0);
  count_key(keys, "hidden_size_per_layer_input", own.input_width, 256);
  if (keys.reader() != nullptr || own.input_width > 0)
    keys.member("vocab_size_per_layer_input", own.input_rows, 262144);
  if (!keys.fit(model)) return;
  if (own.input_width == 0) own.input_rows = 0;
  window_layer_keys(keys, model);
  layer_size_keys(keys, model);
  angle_keys(keys, model);
  keys.fixed("hidden_activation", {"gelu_pytorch_tanh"});
  keys.fixed("enable_moe_block", {false});
  keys.inert({"num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size"});
  // "vision" concerns only the tokens of images.
  if (ConfigReader* const reader = keys.reader())
    reader->expect("use_bidirectional_attention", {"vision", false});
  written_of_attention(keys, model);
}

/// Published folders also have maps of keys and values in the layers that read shared ones.
std::vector<std::string> unused_tensors(const ModelConfig& config) {
  std::vector<std::string> names;
  for (std::int64_t i = layers_with_keys(config); i < config.layers; ++i)
    for (const char* prefix : {"", "language_model."})
      for (const char* module : {"k_proj", "v_proj", "k_norm"})
        names.push_back(concat(prefix, "layers.", i, ".self_attn.", module, "."));
  return names;
}

// Source: llama.cpp, src/models/gemma4.cpp, and src/llama-model.cpp for the shared layers.
std::string gemma4_gguf_difference(const ModelConfig& model) {
  const std::string letters = gemma4_letters(model);
  const std::int64_t first = layers_with_keys(model);
  if (model.window == 0) return "llama.cpp's Gemma 4 requires a sliding window (model.window)";
  if (model.gemma4.input_width > 0 && model.gemma4.input_rows != model.vocabulary)
    return concat("llama.cpp's Gemma 4 has per-layer inputs for all tokens, but ",
                  "model.gemma4.input_rows is ", model.gemma4.input_rows,
                  " and model.vocabulary is ", model.vocabulary);
  if (model.gemma4.shared_layers == 0) return "";
  const bool shares_windows = letters.find('w', static_cast<std::size_t>(first)) != letters.npos;
  const bool fits = first >= 2 && letters[static_cast<std::size_t>(first) - 1] == 'a' &&
                    (!shares_windows || letters[static_cast<std::size_t>(first) - 2] == 'w');
  return fits ? ""
              : "in llama.cpp's Gemma 4, the last two layers that compute their own keys are one "
                "with a window and then one without (model.gemma4.shared_layers, "
                "model.window_layers)";
}

}  // namespace

ModelFamily gemma4_family() {
  return {.name = "gemma4",
          .title = "Gemma 4",
          .keys = {"heads", "initializer_range", "kv_heads", "head_size", "intermediate_size",
                   "norm_epsilon", "rope_theta", "tied_head", "attention_bias", "window",
                   "window_layers", "window_rope_theta", "logit_cap", "rotary_share", "gemma4"},
          .collect_problems = collect_gemma4_problems,
          .resolved = resolved_gemma4,
          .make =
              [](const ModelConfig& config, std::uint64_t seed, const Stream& stream) {
                return std::make_unique<Decoder>(
                    config, gemma4_spec(resolved_gemma4(config), stream), seed, stream);
              },
          .presets = {},
          .hugging_face =
              HuggingFaceLayout{
                  .model_type = "gemma4_text",
                  .architecture = "Gemma4ForCausalLM",
                  .prefix = "model.",
                  .keys = gemma4_keys,
                  .tied_head = "embed_tokens.weight",
                  .ignored = {".rotary_emb.inv_freq"},
                  .has_window_key = true,
                  .outer = HuggingFaceLayout::Outer{.model_type = "gemma4",
                                                    .prefix = "model.language_model.",
                                                    .inert = {"audio_config", "boa_token_id",
                                                              "eoa_token_index"},
                                                    .file_tied_head = true},
                  .carried = {"vision_tower.", "audio_tower.", "embed_vision.", "embed_audio."},
                  .unused = unused_tensors},
          .gguf = GgufLayout{.architecture = "gemma4",
                             .rotates_share = true,
                             .names = {{"post_attention_layernorm", "post_attention_norm"}},
                             .difference = gemma4_gguf_difference}};
}

}  // namespace hybrid_trainer
