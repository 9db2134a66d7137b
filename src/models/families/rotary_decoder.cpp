#include "src/models/families/rotary_decoder.h"

#include <cmath>

namespace hybrid_trainer {
namespace {

using Fixed = HuggingFaceLayout::Fixed;

std::vector<Fixed> no_keys(const ModelConfig&) { return {}; }

std::vector<std::string> config_keys(const RotaryDecoder& kind) {
  std::vector<std::string> keys{"heads",        "dropout",     "initializer_range", "key_heads",
                                "head_size",    "inner_width", "norm_epsilon",      "rope_theta",
                                "rope_scaling", "tied_head"};
  const auto add = [&](bool has, std::initializer_list<const char*> more) {
    if (has) keys.insert(keys.end(), more.begin(), more.end());
  };
  add(kind.attention_bias, {"attention_bias"});
  add(kind.mlp_bias, {"mlp_bias"});
  add(*kind.windows != '\0', {"window", "window_layers"});
  add(kind.window_rope, {"window_rope_theta"});
  add(kind.caps, {"query_scalar", "attention_cap", "logit_cap"});
  return keys;
}

}  // namespace

ModelConfig resolved_rotary_decoder(const RotaryDecoder& kind, const ModelConfig& given) {
  ModelConfig config = given;
  if (config.key_heads == 0) config.key_heads = config.heads;
  if (config.head_size == 0) config.head_size = config.width / config.heads;
  if (config.inner_width == 0) config.inner_width = (8 * config.width + 191) / 192 * 64;
  if (config.window_layers.empty()) config.window_layers = kind.windows;
  if (kind.window_rope && config.window_rope_theta == 0) config.window_rope_theta = 1e4;
  if (kind.caps && config.query_scalar == 0)
    config.query_scalar = static_cast<double>(config.head_size);
  RotaryScaling& scaling = config.rope_scaling;
  if (scaling.type == "default" || scaling.type == "linear") {
    scaling = {.type = scaling.type, .factor = scaling.factor};
    if (scaling.type == "default") scaling.factor = 1;
  } else if (scaling.original_context == 0) {
    scaling.original_context = config.context;
  }
  return config;
}

DecoderSpec rotary_decoder_spec(const RotaryDecoder& kind, const ModelConfig& given) {
  const ModelConfig config = resolved_rotary_decoder(kind, given);
  const double scale = config.query_scalar > 0 ? 1 / std::sqrt(config.query_scalar) : 0;
  DecoderSpec spec{
      .block = {.width = config.width,
                .heads = static_cast<int>(config.heads),
                .head_size = config.head_size,
                .inner_width = config.inner_width,
                .biases = config.attention_bias || kind.biased_queries,
                .dropout = static_cast<float>(config.dropout),
                .norm_epsilon = static_cast<float>(config.norm_epsilon),
                .norm = kind.gemma ? NormKind::kRootMeanSquareOnePlus : NormKind::kRootMeanSquare,
                .key_heads = static_cast<int>(config.key_heads),
                .gated = true,
                .gate = kind.gemma ? kernels::Gate::kGelu : kernels::Gate::kSilu,
                .output_bias = config.attention_bias,
                .feed_forward_biases = config.mlp_bias,
                .query_key_norm = kind.query_key_norm,
                .sandwich = kind.gemma,
                .attention_scale = static_cast<float>(scale),
                .attention_cap = static_cast<float>(config.attention_cap),
                .window = config.window},
      .rotary_theta = config.rope_theta,
      .rotary_scaling = config.rope_scaling,
      .tied_head = config.tied_head,
      .deviations = usual_deviations(config)};
  if (!config.window_layers.empty()) spec.windows = config.window_layers;
  if (kind.window_rope) spec.window_theta = config.window_rope_theta;
  spec.scaled_embedding = kind.gemma;
  spec.logit_cap = static_cast<float>(config.logit_cap);
  return spec;
}

void collect_rotary_decoder_problems(const RotaryDecoder& kind, const ModelConfig& config,
                                     std::vector<std::string>& problems) {
  if (config.heads < 1) return;
  if (config.head_size == 0 && config.width % config.heads != 0) {
    problems.push_back(concat("model.heads: got ", config.heads,
                              ", which does not divide model.width ", config.width,
                              "; give model.head_size"));
    return;
  }
  const ModelConfig whole = resolved_rotary_decoder(kind, config);
  if (whole.heads % whole.key_heads != 0) {
    problems.push_back(concat("model.key_heads: got ", config.key_heads,
                              ", which does not divide model.heads ", config.heads));
  }
  if (whole.head_size < 2 || whole.head_size % 2 != 0) {
    problems.push_back(concat("model.head_size: got ", whole.head_size,
                              ", want an even number: positions rotate pairs of channels"));
  }
  if (whole.window_layers.find_first_not_of("wa") != std::string::npos) {
    problems.push_back(concat("model.window_layers: got ", config.window_layers,
                              ", want letters w (with a window) and a (without)"));
  }
  if (kind.window_keys == WindowKeys::kAll && whole.window_layers.find('a') != std::string::npos) {
    problems.push_back(concat("model.window_layers: got ", config.window_layers,
                              ", and all layers of the family ", kind.name, " have the window"));
  }
  const RotaryScaling& scaling = whole.rope_scaling;
  if (scaling.type == "llama3" && scaling.low_frequency >= scaling.high_frequency) {
    problems.push_back(concat("model.rope_scaling.low_frequency: got ", scaling.low_frequency,
                              ", want less than high_frequency, ", scaling.high_frequency));
  }
  if (scaling.type == "dynamic" && whole.head_size == 2)
    problems.push_back("model.rope_scaling.type: dynamic wants a head_size of at least 4");
}

std::vector<Fixed> rotary_decoder_written_keys(const ModelConfig& config) {
  return {{"initializer_range", {config.initializer_range.value_or(0.02)}},
          {"attention_dropout", {0.0}}};
}

/// Fused products fall apart into those of transformers.
std::vector<FileTensor> rotary_decoder_file_tensors(const RotaryDecoder& kind,
                                                    const Parameter& parameter,
                                                    const ModelConfig& config) {
  const std::string& name = parameter.name();
  const Shape& shape = parameter.shape();
  if (name == "lm_head.weight")
    return {{name, {config.vocabulary, config.width}, false, /*prefixed=*/false}};
  if (name == "wte.weight") return {{"embed_tokens.weight", {config.vocabulary, config.width}}};
  if (name == "ln_f.weight") return {{"norm.weight", shape}};
  const std::size_t part = name.find('.', 2);  // "h.0.attn.c_attn.weight"
  const std::size_t last = name.rfind('.');
  const std::string layer = "layers." + name.substr(2, part - 1),
                    rest = name.substr(part + 1, last - part - 1), end = name.substr(last);
  const auto rows = [&](const char* of, std::int64_t count) {
    return FileTensor{layer + of + end,
                      shape.rank() == 1 ? Shape{count} : Shape{count, config.width}};
  };
  const auto whole = [&](const char* of) {
    return std::vector<FileTensor>{{layer + of + end, shape}};
  };
  if (rest == "ln_1") return whole("input_layernorm");
  if (rest == "ln_2")
    return whole(kind.gemma ? "pre_feedforward_layernorm" : "post_attention_layernorm");
  if (rest == "ln_3") return whole("post_attention_layernorm");
  if (rest == "ln_4") return whole("post_feedforward_layernorm");
  if (rest == "attn.q_norm") return whole("self_attn.q_norm");
  if (rest == "attn.k_norm") return whole("self_attn.k_norm");
  if (rest == "attn.c_proj") return whole("self_attn.o_proj");
  if (rest == "mlp.c_proj") return whole("mlp.down_proj");
  if (rest == "mlp.c_fc")
    return {rows("mlp.gate_proj", config.inner_width), rows("mlp.up_proj", config.inner_width)};
  return {rows("self_attn.q_proj", config.heads * config.head_size),
          rows("self_attn.k_proj", config.key_heads * config.head_size),
          rows("self_attn.v_proj", config.key_heads * config.head_size)};
}

ModelFamily rotary_decoder_row(const RotaryDecoder& kind) {
  HuggingFaceLayout layout{
      .model_type = kind.model_type,
      .architecture = kind.architecture,
      .prefix = "model.",
      .members = {{"num_hidden_layers", &ModelConfig::layers},
                  {"num_attention_heads", &ModelConfig::heads},
                  {"hidden_size", &ModelConfig::width},
                  {"intermediate_size", &ModelConfig::inner_width},
                  {"vocab_size", &ModelConfig::vocabulary},
                  {"max_position_embeddings", &ModelConfig::context, kind.file_context},
                  {"num_key_value_heads", &ModelConfig::key_heads, kind.file_key_heads},
                  {"rms_norm_eps", &ModelConfig::norm_epsilon, 1e-6},
                  {"tie_word_embeddings", &ModelConfig::tied_head,
                   kind.file_tied_head ? 1.0 : 0.0}},
      .fixed = {},
      .derived = no_keys,
      .written = rotary_decoder_written_keys,
      .tensors = nullptr,
      .tied_head = "embed_tokens.weight",
      .ignored = {".rotary_emb.inv_freq"},
      .rope_theta = kind.file_theta,
      .window_keys = kind.window_keys,
      .windows = kind.windows};
  const auto member = [&](const char* key, auto pointer, double missing) {
    layout.members.push_back({key, pointer, missing});
  };
  if (kind.head_dim) member("head_dim", &ModelConfig::head_size, kind.file_head_size);
  if (kind.attention_bias) member("attention_bias", &ModelConfig::attention_bias, 0);
  if (kind.mlp_bias) member("mlp_bias", &ModelConfig::mlp_bias, 0);
  if (kind.gemma) {
    layout.fixed = {{"hidden_activation", {std::string("gelu_pytorch_tanh")}},
                    {"hidden_act", {std::string("gelu_pytorch_tanh")}}};
  } else {
    layout.fixed = {{"hidden_act", {std::string("silu"), std::string("swish")}}};
  }
  if (kind.caps) {
    const bool second = !kind.window_rope;
    member("query_pre_attn_scalar", &ModelConfig::query_scalar, 256);
    layout.nullable.push_back(
        {"attn_logit_softcapping", &ModelConfig::attention_cap, second ? 50.0 : 0.0});
    layout.nullable.push_back(
        {"final_logit_softcapping", &ModelConfig::logit_cap, second ? 30.0 : 0.0});
  }
  if (kind.window_rope) layout.window_rope_theta = &ModelConfig::window_rope_theta;
  return {.name = kind.name,
          .title = kind.title,
          .keys = config_keys(kind),
          .collect_problems = nullptr,
          .resolved = nullptr,
          .make = nullptr,
          .step_flops = nullptr,
          .recomputed_flops = nullptr,
          .presets = kind.presets == nullptr ? std::vector<ModelPreset>{} : kind.presets(),
          .hugging_face = layout};
}

}  // namespace hybrid_trainer
