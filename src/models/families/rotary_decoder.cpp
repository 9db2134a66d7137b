#include "src/models/families/rotary_decoder.h"

#include <cmath>

#include "src/models/families/decoder_parts.h"

namespace hybrid_trainer {

namespace {

bool has_experts(const RotaryDecoder& kind) { return kind.experts.has_value(); }

bool has_feed_forward(const RotaryDecoder& kind) {
  return !has_experts(kind) || kind.experts->keys.has_dense_layers;
}

std::vector<std::string> config_keys(const RotaryDecoder& kind) {
  std::vector<std::string> keys{
      "heads",        "dropout",    "initializer_range", "kv_heads",  "head_size",
      "norm_epsilon", "rope_theta", "rope_scaling",      "tied_head", "attention_pattern"};
  const auto add = [&](bool has, std::initializer_list<const char*> more) {
    if (has) keys.insert(keys.end(), more.begin(), more.end());
  };
  add(kind.attention_bias, {"attention_bias"});
  add(kind.mlp_bias, {"mlp_bias"});
  add(*kind.windows != '\0', {"window", "window_layers"});
  add(kind.window_rope, {"window_rope_theta"});
  add(kind.file_rotary_share.has_value(), {"rotary_share"});
  add(kind.may_be_encoder, {"bidirectional"});
  add(kind.caps, {"query_scalar", "attention_cap", "logit_cap"});
  add(kind.scales, {"query_scalar", "embedding_scale", "residual_scale", "logit_scale"});
  add(kind.limits_values, {"query_key_value_limit"});
  add(has_feed_forward(kind), {"intermediate_size"});
  add(has_experts(kind), {"experts"});
  return keys;
}

ModelConfig resolved_config(const RotaryDecoder& kind, const ModelConfig& given) {
  ModelConfig config = given;
  resolve_attention(config);
  if (has_experts(kind)) {
    const ExpertKeys& missing = kind.experts->keys;
    resolve_experts(config.experts, config.width,
                    kind.experts->count > 0 ? kind.experts->count : missing.missing_count,
                    missing.missing_chosen, kind.experts->rule);
    if (kind.experts->is_clamped && config.experts.gate_limit == 0)
      config.experts.gate_limit = static_cast<double>(kernels::ClampedGate{}.limit);
  }
  if (has_feed_forward(kind)) resolve_intermediate_size(config);
  if (config.window_layers.empty()) config.window_layers = kind.windows;
  if (kind.window_rope && config.window_rope_theta == 0)
    config.window_rope_theta = kind.window_theta_key != nullptr ? 1e4 : kind.file_theta;
  if ((kind.caps || kind.scales) && config.query_scalar == 0)
    config.query_scalar = static_cast<double>(config.head_size);
  config.rope_scaling = config.rope_scaling.resolved(config.context);
  return config;
}

Attention::Spec rotary_attention(const RotaryDecoder& kind, const ModelConfig& config,
                                 std::int64_t window, const std::shared_ptr<RotaryTable>& rotary,
                                 const NormSpec& norm) {
  Attention::Spec attention = attention_of(config, window, rotary);
  if (kind.biased_queries) attention.biases = true;
  if (!kind.output_bias) attention.output_bias = false;
  if (kind.query_key_norm) attention.query_key_norm = norm.of_root_mean_square();
  attention.norms_all_heads = kind.norms_all_heads;
  attention.sinks = kind.sinks;
  attention.files.first = kind.attention_files;
  attention.bidirectional = config.bidirectional;
  return attention;
}

/// Returns a norm's name, or an empty one if files have no such norm.
ModuleName norm_name(const char* here, const std::string& in_files) {
  return in_files.empty() ? ModuleName("") : ModuleName(here, in_files);
}

BranchSpec feed_forward_of(const RotaryDecoder& kind, const ModelConfig& config) {
  const GatedFeedForward::Spec feed_forward{
      .width = config.width,
      .intermediate_size = config.intermediate_size,
      .biases = config.mlp_bias,
      .gate = kind.gate,
      .files = {.first = kind.feed_forward_files, .last = "down_proj"}};
  return {.name = "mlp",
          .norm = norm_name("ln_2", kind.norms.feed_forward),
          .make = branch_of<GatedFeedForward>(feed_forward)};
}

BranchSpec mixture_of(const RotaryDecoder& kind, const ModelConfig& config) {
  ExpertMixture::Spec mixture{.experts = experts_of(config, kind.gate),
                              .shared_width = config.experts.shared_width,
                              .shared_gate = true,
                              .files = kind.experts->files};
  mixture.experts.router_bias = mixture.experts.biases = kind.experts->has_biases;
  return {.name = {"mlp", kind.experts->module},
          .norm = norm_name("ln_2", kind.norms.feed_forward),
          .make = branch_of<ExpertMixture>(mixture)};
}

LayerSpec layer_of(const RotaryDecoder& kind, const Attention::Spec& attention, BranchSpec mlp) {
  const LayerNorms& norms = kind.norms;
  LayerSpec layer{{.name = {"attn", "self_attn"},
                   .norm = norm_name("ln_1", norms.attention),
                   .make = branch_of<Attention>(attention)},
                  std::move(mlp)};
  if (!norms.after_attention.empty()) layer[0].last_norm = {"ln_3", norms.after_attention};
  if (!norms.after_feed_forward.empty()) layer[1].last_norm = {"ln_4", norms.after_feed_forward};
  return layer;
}

char with_experts(char letter) { return static_cast<char>(letter - 'a' + 'A'); }

/// Kinds of layers: w with a window, a without; v and n: the same without rotation; uppercase: with
/// experts.
std::map<char, LayerSpec> kinds_of(const RotaryDecoder& kind, const ModelConfig& config,
                                   const std::shared_ptr<RotaryTable>& angles,
                                   const std::shared_ptr<RotaryTable>& of_windows,
                                   const NormSpec& norm) {
  std::map<char, LayerSpec> kinds;
  for (const char letter : {'w', 'a', 'v', 'n'}) {
    const bool has_window = letter == 'w' || letter == 'v';
    const bool rotates = letter == 'w' || letter == 'a';
    const auto& rotary = has_window ? of_windows : angles;
    const Attention::Spec attention = rotary_attention(kind, config, has_window ? config.window : 0,
                                                       rotates ? rotary : nullptr, norm);
    if (has_feed_forward(kind))
      kinds.emplace(letter, layer_of(kind, attention, feed_forward_of(kind, config)));
    if (has_experts(kind))
      kinds.emplace(with_experts(letter), layer_of(kind, attention, mixture_of(kind, config)));
  }
  return kinds;
}

std::string pattern_of(const ModelConfig& config) {
  std::string pattern;
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const char letter = config.window_layers.empty() ? 'a' : kind_of_layer(config.window_layers, i);
    pattern += has_experts(config.experts, i) ? with_experts(letter) : letter;
  }
  return pattern;
}

DecoderSpec spec_of(const RotaryDecoder& kind, const ModelConfig& config) {
  const auto table = [&](double theta, const RotaryScaling& scaling) {
    return std::make_shared<RotaryTable>(theta, scaling, config.context, rotated_channels(config),
                                         kind.pairs_are_adjacent);
  };
  const NormSpec norm{kind.norm, static_cast<float>(config.norm_epsilon)};
  const auto angles = table(config.rope_theta, config.rope_scaling);
  const auto of_windows = kind.window_rope ? table(config.window_rope_theta, {}) : angles;
  return {.residual = {config.width, norm, static_cast<float>(config.dropout),
                       static_cast<float>(config.residual_scale)},
          .kinds = kinds_of(kind, config, angles, of_windows, norm),
          .pattern = pattern_of(config),
          .rotary = kind.window_rope ? std::vector{angles, of_windows} : std::vector{angles},
          .embedding_scale = kind.scaled_embedding ? std::sqrt(static_cast<double>(config.width))
                                                   : config.embedding_scale,
          .logit_cap = static_cast<float>(config.logit_cap),
          .logit_scale = config.logit_scale,
          .tied_head = config.tied_head,
          .deviations = default_deviations(config),
          .files = {.layers = "layers", .tokens = "embed_tokens", .final_norm = "norm"}};
}

void collect_mixture_problems(const RotaryDecoder& kind, const ModelConfig& config,
                              std::vector<std::string>& problems) {
  collect_expert_problems(config, problems);
  const ExpertConfig& experts = config.experts;
  if (!experts.layers.empty() && !kind.experts->keys.has_dense_layers)
    problems.push_back(concat("model.experts.layers: got ", experts.layers,
                              ", but all layers of the family ", kind.name,
                              " have experts; leave it out"));
  if (kind.experts->keys.has_dense_layers)
    collect_pattern_problems("model.experts.layers", experts.layers, expert_letters(),
                             config.layers, problems);
  if (experts.gate_limit > 0 && !kind.experts->is_clamped)
    problems.push_back(concat("model.experts.gate_limit: got ", experts.gate_limit,
                              ", but experts of the family ", kind.name,
                              " do not clamp; leave it out"));
  if (experts.shared_width > 0 && !kind.experts->is_shared)
    problems.push_back(concat("model.experts.shared_width: got ", experts.shared_width,
                              ", but the family ", kind.name,
                              " has no shared expert; leave it out"));
}

void collect_problems(const RotaryDecoder& kind, const ModelConfig& config,
                      std::vector<std::string>& problems) {
  if (config.heads < 1) return;
  if (collect_head_size_problem(config, problems)) return;
  const ModelConfig whole = resolved_config(kind, config);
  collect_kv_head_problem(whole, problems);
  if (kind.file_rotary_share) {
    collect_rotary_share_problem(whole, problems);
  } else if (whole.head_size < 2 || whole.head_size % 2 != 0) {
    problems.push_back(concat("model.head_size: got ", whole.head_size,
                              ", want an even number: positions rotate pairs of channels"));
  }
  if (whole.window_layers != kind.windows) {
    collect_pattern_problems("model.window_layers", config.window_layers,
                             window_letters(kind.letters), config.layers, problems);
  }
  if (kind.window_keys == WindowKeys::kAll && whole.window_layers.find('a') != std::string::npos) {
    problems.push_back(concat("model.window_layers: got ", config.window_layers,
                              ", but all layers of the family ", kind.name,
                              " have the window; leave out window_layers"));
  }
  collect_block_pattern_problems(config, problems);
  if (has_experts(kind)) collect_mixture_problems(kind, whole, problems);
  const RotaryScaling& scaling = whole.rope_scaling;
  if (scaling.type == "llama3" && scaling.low_frequency >= scaling.high_frequency) {
    problems.push_back(concat("model.rope_scaling.low_frequency: got ", scaling.low_frequency,
                              ", want less than high_frequency, ", scaling.high_frequency));
  }
  collect_longrope_problem(whole, problems);
  if (scaling.type == "dynamic" && whole.head_size == 2)
    problems.push_back("model.rope_scaling.type: dynamic requires a head_size of at least 4");
}

/// Reads or writes the sliding-window settings of config.json. An encoder's window in the file
/// covers both sides of a query; model.window counts one side and the query itself.
void window_keys_of(const RotaryDecoder& kind, ConfigKeys& keys, ModelConfig& model) {
  if (kind.window_keys == WindowKeys::kNone) return;
  const bool counts_both = model.bidirectional;
  if (counts_both && keys.reader() == nullptr && model.window > 0)
    model.window = std::max<std::int64_t>(1, 2 * (model.window - 1));
  window_keys(keys, model, kind.window_keys, kind.windows, kind.file_window);
  if (counts_both && keys.reader() != nullptr && model.window > 0)
    model.window = model.window / 2 + 1;
}

void rotary_decoder_keys(const RotaryDecoder& kind, ConfigKeys& keys, ModelConfig& model) {
  keys.member("num_hidden_layers", model.layers);
  keys.member("num_attention_heads", model.heads);
  keys.member("hidden_size", model.width);
  keys.member("vocab_size", model.vocabulary);
  keys.member("max_position_embeddings", model.context, kind.file_context);
  keys.nullable("num_key_value_heads", model.kv_heads, kind.file_kv_heads);
  keys.member("rms_norm_eps", model.norm_epsilon, kind.file_epsilon);
  keys.member("tie_word_embeddings", model.tied_head, kind.file_tied_head);
  keys.member("head_dim", model.head_size, kind.file_head_size);
  if (has_feed_forward(kind)) keys.member("intermediate_size", model.intermediate_size);
  if (kind.limits_values) keys.nullable("clip_qkv", model.query_key_value_limit, 0);
  if (kind.scales) scale_keys(keys, model);
  if (kind.attention_bias)
    keys.member("attention_bias", model.attention_bias, kind.file_attention_bias);
  if (kind.mlp_bias) keys.member("mlp_bias", model.mlp_bias, 0);
  if (kind.caps) {
    keys.member("query_pre_attn_scalar", model.query_scalar, 256);
    keys.nullable("attn_logit_softcapping", model.attention_cap, kind.file_attention_cap);
    keys.nullable("final_logit_softcapping", model.logit_cap, kind.file_logit_cap);
  }
  if (kind.may_be_encoder && (keys.reader() != nullptr || model.bidirectional))
    keys.member("use_bidirectional_attention", model.bidirectional, 0);
  if (!keys.fit(model)) return;
  rotary_keys(keys, model,
              {.theta = kind.file_theta,
               .windows_have_own = kind.window_rope,
               .share = kind.file_rotary_share,
               .wants_scaling = kind.file_requires_scaling,
               .scales_queries = kind.scales_queries,
               .window_theta_key = kind.window_theta_key,
               .original_context = kind.file_original_context});
  window_keys_of(kind, keys, model);
  if (has_experts(kind)) expert_keys(keys, model, kind.experts->keys);
  if (kind.more_keys != nullptr) kind.more_keys(keys, model);
  if (kind.gate == kernels::Gate::kGelu) {
    for (const char* key : {"hidden_activation", "hidden_act"})
      keys.fixed(key, {"gelu_pytorch_tanh"});
  } else {
    silu_key(keys);
  }
  if (has_experts(kind) && kind.biased_queries) keys.fixed("qkv_bias", {true});
  written_of_attention(keys, model);
}

}  // namespace

ModelFamily rotary_decoder_family(const RotaryDecoder& kind) {
  return {.name = kind.name,
          .title = kind.title,
          .keys = config_keys(kind),
          .collect_problems =
              [kind](const ModelConfig& config, std::vector<std::string>& problems) {
                collect_problems(kind, config, problems);
              },
          .resolved = [kind](const ModelConfig& config) { return resolved_config(kind, config); },
          .make =
              [kind](const ModelConfig& config, std::uint64_t seed, const Stream& stream) {
                const DecoderSpec spec = spec_of(kind, resolved_config(kind, config));
                return std::make_unique<Decoder>(config, spec, seed, stream);
              },
          .presets = kind.presets,
          .hugging_face = HuggingFaceLayout{.model_type = kind.model_type,
                                            .architecture = kind.architecture,
                                            .prefix = "model.",
                                            .keys =
                                                [kind](ConfigKeys& keys, ModelConfig& model) {
                                                  rotary_decoder_keys(kind, keys, model);
                                                },
                                            .tied_head = "embed_tokens.weight",
                                            .ignored = {".rotary_emb.inv_freq"},
                                            .has_window_key = *kind.windows != '\0',
                                            .experts_are_parameters = kind.experts_are_parameters,
                                            .outer = kind.outer,
                                            .carried = kind.carried},
          .gguf = kind.gguf};
}

}  // namespace hybrid_trainer
