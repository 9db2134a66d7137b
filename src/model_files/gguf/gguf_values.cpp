#include "src/model_files/gguf/gguf_values.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/models/decoder.h"
#include "src/core/messages.h"
#include "src/model_files/gguf/gguf_keys.h"

namespace hybrid_trainer {

namespace {

[[noreturn]] void refuse(const std::string& key, const std::string& value, const std::string& why) {
  throw DataError(concat("model.", key, "=", value, " cannot be stored in a GGUF file: ", why,
                         "; export a Hugging Face folder instead"));
}

std::int64_t head_size(const ModelConfig& model) {
  return model.head_size > 0 ? model.head_size : model.width / model.heads;
}

std::int64_t kv_heads(const ModelConfig& model) {
  return model.kv_heads > 0 ? model.kv_heads : model.heads;
}

/// Returns each layer's number of key heads, 0 for layers without attention.
std::vector<std::int64_t> kv_heads_of_layers(const ModelConfig& model) {
  std::vector<std::int64_t> heads;
  for (std::int64_t i = 0; i < model.layers; ++i)
    heads.push_back(kind_of_layer(model.mixers, i) == 'a' ? kv_heads(model) : 0);
  return heads;
}

void check_scaling(const RotaryScaling& scaling, const GgufLayout& layout) {
  // Source: llama.cpp, conversion/mistral.py. Its multiplier is mscale_all_dim, given that mscale
  // is 1.
  const bool has_multiplier =
      layout.scales_queries && scaling.mscale == 1 && scaling.mscale_all_dim == 1;
  RotaryScaling usual = scaling;
  usual.attention_factor = 0;
  const bool has_own_amplitude = std::abs(scaling.amplitude() - usual.amplitude()) > 1e-6;
  const bool has_mscale = scaling.mscale != 0 || scaling.mscale_all_dim != 0;
  if (scaling.type == "dynamic")
    refuse("rope_scaling.type", "dynamic", "llama.cpp does not adapt rotary angles to the length");
  if (scaling.type == "longrope" && layout.architecture != "phi3")
    refuse("rope_scaling.type", "longrope", "llama.cpp supports it only for Phi-3");
  if (scaling.query_growth > 0 && (!layout.scales_queries || scaling.type != "yarn"))
    refuse("rope_scaling.query_growth", concat(scaling.query_growth),
           "llama.cpp scales queries only in its architecture mistral3, with YaRN");
  if (scaling.type == "yarn" && (has_own_amplitude || (has_mscale && !has_multiplier) ||
                                 scaling.truncate == layout.keeps_yarn_bounds ||
                                 scaling.beta_fast != 32 || scaling.beta_slow != 1))
    refuse("rope_scaling", "yarn with its own attention_factor, mscale, beta or truncate",
           "llama.cpp computes these itself");
}

std::int64_t leading_dense_layers(const ModelConfig& model) {
  std::int64_t layers = 0;
  while (layers < model.layers && !has_experts(model.experts, layers)) ++layers;
  return layers;
}

/// Checks a mixture against llama.cpp's graph: files have no key for its rule to choose experts.
void check_mixture(const ModelConfig& model, const GgufLayout::Experts& layout,
                   const std::string& title) {
  const ExpertConfig& experts = model.experts;
  if (experts.rule != layout.rule)
    refuse("experts.rule", experts.rule, concat("llama.cpp's ", title, " uses ", layout.rule));
  const bool may_begin_dense = !layout.dense_layers_key.empty();
  for (std::int64_t i = may_begin_dense ? leading_dense_layers(model) : 0; i < model.layers; ++i)
    if (!has_experts(experts, i))
      refuse("experts.layers", experts.layers,
             concat("llama.cpp's ", title, " has experts in all layers",
                    may_begin_dense ? " after the first ones" : ""));
  if (experts.shared_width == 0 && !layout.shared_size_key.empty())
    refuse("experts.shared_width", "0", concat("llama.cpp's ", title, " needs a shared expert"));
  if (experts.scale != 1)
    refuse("experts.scale", concat(experts.scale), concat("llama.cpp's ", title, " has no scale"));
  if (experts.bias_rate > 0)
    refuse("experts.bias_rate", concat(experts.bias_rate),
           concat("llama.cpp's ", title, " chooses experts without a bias"));
}

void check_gemma(const ModelConfig& model, const GgufLayout::Gemma& gemma) {
  // Source: llama.cpp, src/models/gemma2.cpp and gemma3.cpp: f_attention_scale.
  const bool is_27b = model.layers == gemma.layers_of_27b;
  const double scalar = static_cast<double>(is_27b ? model.width / model.heads : head_size(model));
  if (model.query_scalar != scalar)
    refuse("query_scalar", concat(model.query_scalar),
           "llama.cpp divides scores by the square root of the head size");
  if (model.attention_bias) refuse("attention_bias", "true", "llama.cpp's Gemma has no biases");
  if (!model.tied_head)
    refuse("tied_head", "false", "llama.cpp's Gemma ties the head to the token table");
  if (gemma.always_caps && (model.attention_cap == 0 || model.logit_cap == 0))
    refuse("attention_cap and model.logit_cap", "0", "llama.cpp's Gemma 2 always caps");
  if (!gemma.always_caps && model.attention_cap > 0)
    refuse("attention_cap", concat(model.attention_cap), "llama.cpp's Gemma 3 does not cap scores");
}

std::vector<bool> layers_with_window(const ModelConfig& model) {
  std::vector<bool> has_window;
  for (std::int64_t i = 0; i < model.layers; ++i)
    has_window.push_back(kind_of_layer(model.window_layers, i) == 'w');
  return has_window;
}

void add_rotary_values(const ModelConfig& model, const std::string& name,
                       std::vector<GgufPair>& values) {
  const double turned = model.rotary_share * static_cast<double>(head_size(model));
  values.push_back(gguf_count(name + ".rope.dimension_count", static_cast<std::int64_t>(turned)));
  values.push_back(gguf_number(name + ".rope.freq_base", model.rope_theta));
  if (model.window_rope_theta > 0)
    values.push_back(gguf_number(name + ".rope.freq_base_swa", model.window_rope_theta));
  const RotaryScaling scaling = model.rope_scaling.resolved(model.context);
  if (scaling.type == "longrope") {
    values.push_back(
        gguf_count(name + ".rope.scaling.original_context_length", scaling.original_context));
    values.push_back(gguf_number(name + ".rope.scaling.attn_factor", scaling.amplitude()));
  }
  if (scaling.type != "linear" && scaling.type != "yarn") return;
  values.push_back(gguf_text(name + ".rope.scaling.type", scaling.type));
  values.push_back(gguf_number(name + ".rope.scaling.factor", scaling.factor));
  if (scaling.type != "yarn") return;
  values.push_back(
      gguf_count(name + ".rope.scaling.original_context_length", scaling.original_context));
  if (scaling.mscale_all_dim > 0)
    values.push_back(
        gguf_number(name + ".rope.scaling.yarn_log_multiplier", scaling.mscale_all_dim));
  if (scaling.query_growth > 0)
    values.push_back(gguf_number(name + ".attention.temperature_scale", scaling.query_growth));
}

/// Adds Granite's four factors.
void add_scale_values(const ModelConfig& model, const std::string& name,
                      std::vector<GgufPair>& values) {
  values.push_back(gguf_number(name + ".attention.scale", 1 / std::sqrt(model.query_scalar)));
  values.push_back(gguf_number(name + ".embedding_scale", model.embedding_scale));
  values.push_back(gguf_number(name + ".residual_scale", model.residual_scale));
  values.push_back(gguf_number(name + ".logit_scale", 1 / model.logit_scale));
}

/// Adds ModernBERT's window, which files count on both sides of a token. Source: llama.cpp,
/// src/models/modern-bert.cpp.
void add_window_values(const ModelConfig& model, const std::string& name,
                       std::vector<GgufPair>& values) {
  values.push_back(gguf_text(name + ".hidden_activation", "gelu"));
  if (model.window == 0) return;
  values.push_back(gguf_count(name + ".attention.sliding_window", 2 * (model.window - 1)));
  values.push_back(
      gguf_flags(name + ".attention.sliding_window_pattern", layers_with_window(model)));
}

void add_expert_values(const ModelConfig& model, const GgufLayout::Experts& layout,
                       const std::string& name, std::vector<GgufPair>& values) {
  const ExpertConfig& experts = model.experts;
  values.push_back(gguf_count(name + ".expert_count", experts.count));
  values.push_back(gguf_count(name + ".expert_used_count", experts.chosen));
  if (layout.has_own_size)
    values.push_back(gguf_count(name + ".expert_feed_forward_length", experts.intermediate_size));
  if (experts.shared_width > 0)
    values.push_back(gguf_count(name + ".expert_shared_feed_forward_length", experts.shared_width));
  if (layout.gating_function > 0)
    values.push_back(gguf_count(name + ".expert_gating_func", layout.gating_function));
  if (!layout.dense_layers_key.empty())
    values.push_back(gguf_count(name + ".leading_dense_block_count", leading_dense_layers(model)));
}

/// Adds the values of Gated DeltaNet layers. Source: llama.cpp, conversion/qwen.py.
void add_delta_rule_values(const ModelConfig& model, const GgufLayout::DeltaRule& layout,
                           const std::string& name, std::vector<GgufPair>& values) {
  const StateSpaceConfig& sizes = model.state_space;
  std::vector<bool> is_recurrent;
  for (std::int64_t i = 0; i < model.layers; ++i)
    is_recurrent.push_back(kind_of_layer(model.mixers, i) == 'd');
  values.push_back(gguf_count(name + ".ssm.conv_kernel", sizes.taps));
  values.push_back(gguf_count(name + ".ssm.state_size", sizes.state_size));
  values.push_back(gguf_count(name + ".ssm.group_count", sizes.groups));
  values.push_back(gguf_count(name + ".ssm.time_step_rank", sizes.heads));
  values.push_back(gguf_count(name + ".ssm.inner_size", sizes.heads * sizes.head_size));
  values.push_back(gguf_flags(name + ".attention.recurrent_layers", is_recurrent));
  if (layout.tiles_heads)  // Qwen 3.5's sections of image positions, which texts do not use
    values.push_back(gguf_integers(name + ".rope.dimension_sections", {11, 11, 10, 0}));
}

std::int64_t feed_forward_size(const ModelConfig& model, const GgufLayout& layout) {
  const bool is_of_experts =
      layout.experts && (!layout.experts->has_own_size || model.intermediate_size == 0);
  if (is_of_experts) return model.experts.intermediate_size;
  return model.intermediate_size > 0 ? model.intermediate_size : 4 * model.width;
}

void add_pattern_of_windows(const ModelConfig& model, const std::string& name,
                            std::vector<GgufPair>& values) {
  const std::int64_t window = model.bidirectional ? 2 * (model.window - 1) : model.window;
  values.push_back(gguf_count(name + ".attention.sliding_window", window));
  values.push_back(
      gguf_flags(name + ".attention.sliding_window_pattern", layers_with_window(model)));
}

void add_caps(const ModelConfig& model, const std::string& name, std::vector<GgufPair>& values) {
  if (model.attention_cap > 0)
    values.push_back(gguf_number(name + ".attn_logit_softcapping", model.attention_cap));
  if (model.logit_cap > 0)
    values.push_back(gguf_number(name + ".final_logit_softcapping", model.logit_cap));
}

/// Checks an encoder's outputs. GGUF files have no outputs for tokens.
void check_encoder(const ModelConfig& model) {
  if (!model.dense.empty())
    refuse("dense", model.dense,
           "for this architecture, llama.cpp has no linear layers after pooling");
  if (model.pooling.empty())
    refuse("pooling", "\"\"", "llama.cpp computes embeddings and classes of texts, not of tokens");
  if (model.labels.empty()) return;
  if (model.family == "distilbert" || model.family == "modernbert")
    refuse("family", model.family, "only class heads of BERT and RoBERTa are supported");
  if (model.pooling != "cls")
    refuse("pooling", model.pooling, "llama.cpp's classifiers take the first token");
}

/// Checks the outputs of a decoder, or of a model of a decoder's family that attends both ways.
void check_texts(const ModelConfig& model, const GgufLayout& layout) {
  if (!model.labels.empty())
    refuse("labels", concat(model.labels.size(), " classes"),
           "only class heads of BERT and RoBERTa are supported");
  if (model.bidirectional && model.pooling.empty())
    refuse("pooling", "\"\"", "llama.cpp computes embeddings of texts, not of tokens");
  const std::vector<DenseLayer> dense = model.dense_layers();
  if (dense.empty()) return;
  // Source: llama.cpp, src/models/gemma-embedding.cpp.
  const bool are_plain = std::ranges::all_of(dense, [](const DenseLayer& layer) {
    return !layer.has_bias && layer.activation == "identity";
  });
  if (!model.bidirectional || !layout.gemma)
    refuse("dense", model.dense,
           "for this architecture, llama.cpp has no linear layers after pooling");
  if (std::ssize(dense) != kMaxGgufDense || !are_plain || dense.back().outputs != model.width)
    refuse("dense", model.dense,
           concat("llama.cpp has two linear layers after pooling, without biases and activations, "
                  "the second with ",
                  model.width, " outputs"));
}

/// Adds the values of pooling and of linear layers after it. Source: llama.cpp, conversion/gemma.py.
void add_text_values(const ModelConfig& model, const std::string& name,
                     std::vector<GgufPair>& values) {
  if (model.pooling.empty()) return;
  values.push_back(gguf_count(name + ".pooling_type", pooling_number(model.pooling)));
  std::int64_t inputs = model.width, index = 0;
  for (const DenseLayer& layer : model.dense_layers()) {
    const std::string dense = concat(name, ".", gguf_dense_name(index++));
    values.push_back(gguf_count(dense + "_feat_in", inputs));
    values.push_back(gguf_count(dense + "_feat_out", layer.outputs));
    inputs = layer.outputs;
  }
}

/// Adds the values of an encoder's outputs. Source: llama.cpp, gguf-py/gguf/constants.py.
void add_encoder_values(const ModelConfig& model, const std::string& name, const std::string& file,
                        std::vector<GgufPair>& values) {
  values.push_back(gguf_flag(name + ".attention.causal", false));
  const bool classifies = !model.labels.empty();
  values.push_back(gguf_count(name + ".pooling_type",
                              classifies ? kRankPooling : pooling_number(model.pooling)));
  if (!classifies) return;
  std::vector<std::string> labels;
  for (const ClassLabel& label : model.labels) labels.push_back(label.name);
  values.push_back(gguf_texts(name + ".classifier.output_labels", std::move(labels)));
  if (model.token_types > 1)
    warn(file,
         "llama.cpp gives both texts of a pair the token type 0, so scores of pairs differ there");
  if (model.problem_type == "multi_label_classification")
    warn(file,
         "GGUF has no key for several labels per text (model.problem_type): programs that "
         "read the file choose one");
}

}  // namespace

std::string gguf_architecture(const ModelConfig& model) {
  const ModelFamily& family = find_family(model.family);
  const GgufLayout& layout = family.gguf;
  if (layout.architecture.empty()) {
    std::vector<std::string> known;
    for (const ModelFamily& one : model_families())
      if (!one.gguf.architecture.empty()) known.push_back(one.name);
    throw DataError(concat("models of the family ", model.family,
                           " cannot be written as GGUF; want one of ", join(known),
                           ", or export a Hugging Face folder"));
  }
  if (model.attention_pattern.is_on())
    refuse("attention_pattern", "on", "llama.cpp has no sparse attention");
  if (model.rotary_share != 1 && !layout.rotates_share)
    refuse("rotary_share", concat(model.rotary_share), "llama.cpp rotates whole heads");
  if (model.attention_bias && !layout.may_have_biases && !layout.gemma)
    refuse("attention_bias", "true", concat("llama.cpp's ", family.title, " has no biases"));
  if (layout.has_short_convolutions && model.state_space.biases)
    refuse("state_space.biases", "true", concat("llama.cpp's ", family.title, " has no biases"));
  if (model.mlp_bias && !layout.may_have_biases)
    refuse("mlp_bias", "true", concat("llama.cpp's ", family.title, " has no biases"));
  check_scaling(model.rope_scaling, layout);
  const std::string both_ways = gguf_architecture_both_ways(family);
  if (is_gguf_encoder(layout.architecture)) {
    check_encoder(model);
  } else if (model.bidirectional && both_ways.empty()) {
    refuse("bidirectional", "true", concat("llama.cpp's ", family.title, " hides later tokens"));
  } else {
    check_texts(model, layout);
  }
  if (const std::string text = layout.difference ? layout.difference(model) : ""; !text.empty())
    throw DataError(concat("this model cannot be stored in a GGUF file: ", text,
                           "; export a Hugging Face folder instead"));
  if (layout.gemma) check_gemma(model, *layout.gemma);
  if (layout.experts) check_mixture(model, *layout.experts, family.title);
  return model.bidirectional && !both_ways.empty() ? both_ways : layout.architecture;
}

std::vector<GgufPair> gguf_model_values(const ModelConfig& model, const std::string& file) {
  const std::string name = gguf_architecture(model);
  const ModelFamily& family = find_family(model.family);
  if (family.has("gemma4")) {
    std::vector<GgufPair> values;
    add_gemma4_values(model, name, values);
    return values;
  }
  const bool rotates = family.has("rope_theta"), is_modern = name == kModernBert;
  std::vector<GgufPair> values{
      gguf_count(name + ".block_count", model.layers),
      gguf_count(name + ".context_length", model.context),
      gguf_count(name + ".embedding_length", model.width),
      gguf_count(name + ".feed_forward_length", feed_forward_size(model, family.gguf)),
      gguf_count(name + ".attention.head_count", model.heads),
      family.gguf.has_short_convolutions
          ? gguf_integers(name + ".attention.head_count_kv", kv_heads_of_layers(model))
          : gguf_count(name + ".attention.head_count_kv", kv_heads(model)),
      gguf_number(name + (rotates && !is_modern ? ".attention.layer_norm_rms_epsilon"
                                                : ".attention.layer_norm_epsilon"),
                  model.family == "distilbert" ? kDistilBertEpsilon : model.norm_epsilon),
      gguf_count(name + ".vocab_size", model.vocabulary)};
  if (is_gguf_encoder(name))
    add_encoder_values(model, name, file, values);
  else
    add_text_values(model, name, values);
  if (!rotates) return values;
  values.push_back(gguf_count(name + ".attention.key_length", head_size(model)));
  values.push_back(gguf_count(name + ".attention.value_length", head_size(model)));
  add_rotary_values(model, name, values);
  if (family.has("residual_scale")) add_scale_values(model, name, values);
  if (family.gguf.has_short_convolutions)
    values.push_back(gguf_count(name + ".shortconv.l_cache", model.state_space.taps));
  if (family.gguf.experts) add_expert_values(model, *family.gguf.experts, name, values);
  if (family.gguf.delta_rule) add_delta_rule_values(model, *family.gguf.delta_rule, name, values);
  if (family.gguf.gemma) add_caps(model, name, values);
  if (has_gguf_windows(family.gguf, model.layers)) {
    add_pattern_of_windows(model, name, values);
  } else if (is_modern) {
    add_window_values(model, name, values);
  } else if (model.window > 0 && model.window < model.context) {
    warn(file, concat("llama.cpp does not support a window for this architecture (model.window is ",
                      model.window, "), so attention is not limited to the window there"));
  }
  if (family.gguf.keeps_yarn_bounds && model.rope_scaling.type == "yarn")
    warn(file,
         "llama.cpp rounds the bounds of YaRN (model.rope_scaling.truncate is false), so its "
         "logits differ slightly");
  return values;
}

std::vector<RotaryDivisors> rotary_divisors(const ModelConfig& model) {
  if (find_family(model.family).has("gemma4"))
    return {{"rope_freqs.weight", gemma4_divisors(model)}};
  const RotaryScaling scaling = model.rope_scaling.resolved(model.context);
  const auto floats = [](const std::vector<double>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
  if (scaling.type == "llama3")
    return {{"rope_freqs.weight", llama3_divisors(head_size(model), model.rope_theta, scaling)}};
  if (scaling.type == "longrope")
    return {{"rope_factors_long.weight", floats(scaling.long_factors)},
            {"rope_factors_short.weight", floats(scaling.short_factors)}};
  return {};
}

}  // namespace hybrid_trainer
