#include "src/model_files/gguf/gguf_values.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/core/messages.h"

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
  // Source: llama.cpp, conversion/mistral.py. Its multiplier is mscale_all_dim of an mscale of 1.
  const bool has_multiplier =
      layout.scales_queries && scaling.mscale == 1 && scaling.mscale_all_dim == 1;
  const bool has_mscale = scaling.mscale != 0 || scaling.mscale_all_dim != 0;
  if (scaling.type == "dynamic")
    refuse("rope_scaling.type", "dynamic", "llama.cpp does not adapt rotary angles to the length");
  if (scaling.type == "longrope" && layout.architecture != "phi3")
    refuse("rope_scaling.type", "longrope", "llama.cpp has it in Phi-3");
  if (scaling.query_growth > 0 && (!layout.scales_queries || scaling.type != "yarn"))
    refuse("rope_scaling.query_growth", concat(scaling.query_growth),
           "llama.cpp scales queries only in its architecture mistral3, with YaRN");
  if (scaling.type == "yarn" &&
      (scaling.attention_factor != 0 || (has_mscale && !has_multiplier) || !scaling.truncate ||
       scaling.beta_fast != 32 || scaling.beta_slow != 1))
    refuse("rope_scaling", "yarn with its own attention_factor, mscale, beta or truncate",
           "llama.cpp computes these itself");
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

/// Adds the windows of ModernBERT, which count both sides. Source: llama.cpp,
/// src/models/modern-bert.cpp.
void add_window_values(const ModelConfig& model, const std::string& name,
                       std::vector<GgufPair>& values) {
  values.push_back(gguf_text(name + ".hidden_activation", "gelu"));
  if (model.window == 0) return;
  values.push_back(gguf_count(name + ".attention.sliding_window", 2 * (model.window - 1)));
  values.push_back(
      gguf_flags(name + ".attention.sliding_window_pattern", layers_with_window(model)));
}

void add_gemma_values(const ModelConfig& model, const std::string& name,
                      std::vector<GgufPair>& values) {
  values.push_back(gguf_count(name + ".attention.sliding_window", model.window));
  values.push_back(
      gguf_flags(name + ".attention.sliding_window_pattern", layers_with_window(model)));
  if (model.attention_cap > 0)
    values.push_back(gguf_number(name + ".attn_logit_softcapping", model.attention_cap));
  if (model.logit_cap > 0)
    values.push_back(gguf_number(name + ".final_logit_softcapping", model.logit_cap));
}

/// Checks an encoder's outputs, of which files have none for tokens.
void check_encoder(const ModelConfig& model) {
  if (model.pooling.empty())
    refuse("pooling", "\"\"", "llama.cpp computes embeddings and classes of texts, not of tokens");
  if (model.labels.empty()) return;
  if (model.family == "distilbert" || model.family == "modernbert")
    refuse("family", model.family, "only class heads of BERT and RoBERTa are supported");
  if (model.pooling != "cls")
    refuse("pooling", model.pooling, "llama.cpp's classifiers take the first token");
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
  if (is_gguf_encoder(layout.architecture)) {
    check_encoder(model);
  } else if (model.bidirectional) {
    refuse("bidirectional", "true", concat("llama.cpp's ", family.title, " hides later tokens"));
  }
  if (!model.dense.empty())
    refuse("dense", model.dense,
           "for this architecture, llama.cpp has no linear layers after pooling");
  if (const std::string text = layout.difference ? layout.difference(model) : ""; !text.empty())
    throw DataError(concat("this model cannot be stored in a GGUF file: ", text,
                           "; export a Hugging Face folder instead"));
  if (layout.gemma) check_gemma(model, *layout.gemma);
  return layout.architecture;
}

std::vector<GgufPair> gguf_model_values(const ModelConfig& model, const std::string& file) {
  const std::string name = gguf_architecture(model);
  const ModelFamily& family = find_family(model.family);
  const bool rotates = family.has("rope_theta"), is_modern = name == kModernBert;
  std::vector<GgufPair> values{
      gguf_count(name + ".block_count", model.layers),
      gguf_count(name + ".context_length", model.context),
      gguf_count(name + ".embedding_length", model.width),
      gguf_count(name + ".feed_forward_length",
                 model.intermediate_size > 0 ? model.intermediate_size : 4 * model.width),
      gguf_count(name + ".attention.head_count", model.heads),
      family.gguf.has_short_convolutions
          ? gguf_integers(name + ".attention.head_count_kv", kv_heads_of_layers(model))
          : gguf_count(name + ".attention.head_count_kv", kv_heads(model)),
      gguf_number(name + (rotates && !is_modern ? ".attention.layer_norm_rms_epsilon"
                                                : ".attention.layer_norm_epsilon"),
                  model.family == "distilbert" ? kDistilBertEpsilon : model.norm_epsilon),
      gguf_count(name + ".vocab_size", model.vocabulary)};
  if (is_gguf_encoder(name)) add_encoder_values(model, name, file, values);
  if (!rotates) return values;
  values.push_back(gguf_count(name + ".attention.key_length", head_size(model)));
  values.push_back(gguf_count(name + ".attention.value_length", head_size(model)));
  add_rotary_values(model, name, values);
  if (family.has("residual_scale")) add_scale_values(model, name, values);
  if (family.gguf.has_short_convolutions)
    values.push_back(gguf_count(name + ".shortconv.l_cache", model.state_space.taps));
  if (family.gguf.gemma) {
    add_gemma_values(model, name, values);
  } else if (is_modern) {
    add_window_values(model, name, values);
  } else if (model.window > 0 && model.window < model.context) {
    warn(file, concat("llama.cpp does not support a window for this architecture (model.window is ",
                      model.window, "), so attention is not limited to the window there"));
  }
  return values;
}

std::vector<RotaryDivisors> rotary_divisors(const ModelConfig& model) {
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
