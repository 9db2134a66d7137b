#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/decoder.h"
#include "src/model_files/gguf/gguf_keys.h"
#include "src/model_files/gguf/gguf_model.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

bool layer_has_window(const ModelConfig& model, std::int64_t layer) {
  return layer + 1 < model.layers && kind_of_layer(model.window_layers, layer) == 'w';
}

/// Returns the value for sliding-window layers, and the value for the other layers.
std::pair<std::int64_t, std::int64_t> by_kind(const GgufKeys& keys, const char* name,
                                              const std::vector<bool>& windows) {
  const std::vector<std::int64_t> counts = keys.counts_of_layers(name);
  const std::int64_t full = counts.back();
  std::int64_t of_windows = full;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (windows[i]) of_windows = counts[i];
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] != (windows[i] ? of_windows : full))
      keys.refuse(concat(keys.key(name), " is ", counts[i], " in layer ", i,
                         ", unlike other layers of its kind"));
  return {of_windows, full};
}

/// Reads the inner width. The last layers, which share keys and values, may have twice this width.
void read_inner_width(const GgufKeys& keys, std::int64_t shared, json::object& config) {
  const std::vector<std::int64_t> sizes = keys.counts_of_layers("feed_forward_length");
  const std::int64_t size = sizes.front(), first_shared = std::ssize(sizes) - shared;
  const bool is_wide = sizes.back() != size;
  for (std::int64_t i = 0; i < std::ssize(sizes); ++i)
    if (const std::int64_t found = sizes[static_cast<std::size_t>(i)];
        found != (is_wide && i >= first_shared ? 2 * size : size))
      keys.refuse(concat(keys.key("feed_forward_length"), " is ", found, " in layer ", i, ", want ",
                         size, ", or twice this in all layers with shared keys"));
  config["intermediate_size"] = size;
  config["use_double_wide_mlp"] = is_wide;
}

/// Returns the share of rotated channels in layers without a window. The divisors of the others
/// are so large that their angles are 0.
double rotated_share(const GgufKeys& keys, std::int64_t head_size) {
  const Tensor values = keys.file().values_of(keys.file().tensor("rope_freqs.weight"));
  const float *begin = values.data<float>(), *const end = begin + values.elements();
  const float* const border = std::find_if(begin, end, [](float value) { return value != 1; });
  const bool rest_is_large = std::all_of(border, end, [](float value) { return value > 1e29f; });
  if (2 * values.elements() != head_size || !rest_is_large || border == begin)
    keys.refuse("its rope_freqs.weight is not a list of ones followed by large divisors");
  return static_cast<double>(border - begin) / static_cast<double>(values.elements());
}

std::int64_t equal_lengths(const GgufKeys& keys, const char* of_keys, const char* of_values,
                           const char* rotated) {
  const std::int64_t size = keys.count(of_keys);
  for (const char* other : {of_values, rotated})
    if (const std::int64_t found = keys.count(other, size); found != size)
      keys.refuse(
          concat(keys.key(other), " is ", found, ", want ", size, ", the value of ", of_keys));
  return size;
}

}  // namespace

json::object gemma4_config(const GgufKeys& keys) {
  const GgufFile& file = keys.file();
  const std::int64_t layers = keys.layers(), shared = keys.count("attention.shared_kv_layers", 0);
  const std::vector<bool> windows = keys.windows(layers, 6);
  if (windows.back()) keys.refuse("its last layer has a window");
  if (shared < 0 || shared >= layers)
    keys.refuse(concat(keys.key("attention.shared_kv_layers"), " is ", shared));
  if (file.text(keys.key("rope.scaling.type")).value_or("none") != "none")
    keys.refuse("scales its rotary angles");
  const auto [window_heads, full_heads] = by_kind(keys, "attention.head_count_kv", windows);
  const std::int64_t full_size =
      equal_lengths(keys, "attention.key_length", "attention.value_length", "rope.dimension_count");
  bool keys_are_values = false;
  for (std::int64_t i = 0; i < layers - shared; ++i)
    if (!windows[static_cast<std::size_t>(i)])
      keys_are_values = file.find_tensor(concat("blk.", i, ".attn_v.weight")) == nullptr;
  if (!keys_are_values && window_heads != full_heads)
    keys.refuse("sliding-window and full-attention layers have different numbers of key heads");
  json::object config{
      {"num_hidden_layers", layers},
      {"num_attention_heads", keys.count("attention.head_count")},
      {"hidden_size", keys.count("embedding_length")},
      {"vocab_size", file.tensor("token_embd.weight").shape[0]},
      {"max_position_embeddings", keys.count("context_length")},
      {"num_key_value_heads", window_heads},
      {"num_global_key_value_heads", keys_are_values ? json::value(full_heads) : json::value()},
      {"attention_k_eq_v", keys_are_values},
      {"head_dim", equal_lengths(keys, "attention.key_length_swa", "attention.value_length_swa",
                                 "rope.dimension_count_swa")},
      {"global_head_dim", full_size},
      {"rms_norm_eps", keys.number("attention.layer_norm_rms_epsilon")},
      {"tie_word_embeddings", own_head(file) == nullptr},
      {"num_kv_shared_layers", shared},
      {"hidden_size_per_layer_input", keys.count("embedding_length_per_layer_input", 0)},
      {"layer_types", layer_types_of(windows)},
      {"sliding_window", keys.count("attention.sliding_window")},
      {"enable_moe_block", false}};
  read_inner_width(keys, shared, config);
  if (const GgufTensor* table = file.find_tensor("per_layer_token_embd.weight"))
    config["vocab_size_per_layer_input"] = table->shape[0];
  constexpr double kMissingCap = 30;  // llama.cpp's default
  if (const double cap = keys.number("final_logit_softcapping", kMissingCap); cap > 0)
    config["final_logit_softcapping"] = cap;
  config["rope_parameters"] = json::object{
      {"full_attention", json::object{{"rope_type", "proportional"},
                                      {"partial_rotary_factor", rotated_share(keys, full_size)},
                                      {"rope_theta", keys.number("rope.freq_base", 1e4)}}},
      {"sliding_attention", json::object{{"rope_type", "default"},
                                         {"rope_theta", keys.number("rope.freq_base_swa", 1e4)}}}};
  return config;
}

void add_gemma4_values(const ModelConfig& model, const std::string& name,
                       std::vector<GgufPair>& values) {
  const Gemma4Config& own = model.gemma4;
  std::vector<bool> windows;
  std::vector<std::int64_t> heads, sizes;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const bool is_wide = own.has_wide_shared_layers && i >= model.layers - own.shared_layers;
    windows.push_back(layer_has_window(model, i));
    heads.push_back(windows.back() ? model.kv_heads : own.kv_heads);
    sizes.push_back((is_wide ? 2 : 1) * model.intermediate_size);
  }
  const auto add_count = [&](const char* key, std::int64_t value) {
    values.push_back(gguf_count(concat(name, ".", key), value));
  };
  add_count("block_count", model.layers);
  add_count("context_length", model.context);
  add_count("embedding_length", model.width);
  add_count("attention.head_count", model.heads);
  values.push_back(gguf_integers(name + ".attention.head_count_kv", heads));
  values.push_back(gguf_integers(name + ".feed_forward_length", sizes));
  values.push_back(gguf_number(name + ".attention.layer_norm_rms_epsilon", model.norm_epsilon));
  add_count("vocab_size", model.vocabulary);
  for (const char* key : {"attention.key_length", "attention.value_length", "rope.dimension_count"})
    add_count(key, own.head_size);
  for (const char* key :
       {"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"})
    add_count(key, model.head_size);
  values.push_back(gguf_number(name + ".rope.freq_base", model.rope_theta));
  values.push_back(gguf_number(name + ".rope.freq_base_swa", model.window_rope_theta));
  add_count("attention.sliding_window", model.window);
  values.push_back(gguf_flags(name + ".attention.sliding_window_pattern", windows));
  add_count("attention.shared_kv_layers", own.shared_layers);
  add_count("embedding_length_per_layer_input", own.input_width);
  values.push_back(gguf_number(name + ".final_logit_softcapping", model.logit_cap));
}

std::vector<float> gemma4_divisors(const ModelConfig& model) {
  const auto size = static_cast<double>(model.gemma4.head_size);
  std::vector<float> divisors(static_cast<std::size_t>(model.gemma4.head_size / 2), 1e30f);
  std::fill_n(divisors.begin(), static_cast<std::size_t>(model.rotary_share * size / 2), 1.0f);
  return divisors;
}

}  // namespace hybrid_trainer
