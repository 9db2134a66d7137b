#include "src/gguf_export/gguf_model_values.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/warning.h"
#include "hybrid_trainer/gguf/rotary_divisors.h"
#include "hybrid_trainer/models/decoder_spec.h"

namespace hybrid_trainer {
namespace {

[[noreturn]] void refuse(const std::string& key, const std::string& value, const char* why) {
  throw DataError(concat("model.", key, "=", value, " has no place in a GGUF file: ", why,
                         "; export a Hugging Face folder instead"));
}

std::int64_t head_size(const ModelConfig& model) {
  return model.head_size > 0 ? model.head_size : model.width / model.heads;
}

std::int64_t key_heads(const ModelConfig& model) {
  return model.key_heads > 0 ? model.key_heads : model.heads;
}

void check_scaling(const RotaryScaling& scaling) {
  const RotaryScaling usual;
  if (scaling.type == "dynamic")
    refuse("rope_scaling.type", "dynamic", "llama.cpp's angles do not change with the length");
  if (scaling.type == "yarn" &&
      (scaling.attention_factor != 0 || scaling.mscale != 0 || scaling.mscale_all_dim != 0 ||
       !scaling.truncate || scaling.beta_fast != 32 || scaling.beta_slow != 1))
    refuse("rope_scaling", "yarn with an attention_factor, mscale, beta or truncate of its own",
           "llama.cpp computes these by itself");
}

void check_gemma(const ModelConfig& model) {
  // Source: llama.cpp, src/models/gemma2.cpp and gemma3.cpp: f_attention_scale.
  const bool is_27b = model.layers == (model.family == "gemma2" ? 46 : 62);
  const double scalar = static_cast<double>(is_27b ? model.width / model.heads : head_size(model));
  if (model.query_scalar != scalar)
    refuse("query_scalar", concat(model.query_scalar),
           "llama.cpp divides scores by the root of a head's size");
  if (model.attention_bias) refuse("attention_bias", "true", "llama.cpp's Gemma has no biases");
  if (!model.tied_head) refuse("tied_head", "false", "llama.cpp's Gemma shares its token table");
  if (model.family == "gemma2" && (model.attention_cap == 0 || model.logit_cap == 0))
    refuse("attention_cap and model.logit_cap", "0", "llama.cpp's Gemma 2 always caps");
  if (model.family == "gemma3" && model.attention_cap > 0)
    refuse("attention_cap", concat(model.attention_cap), "llama.cpp's Gemma 3 caps no scores");
}

void add_rotary_values(const ModelConfig& model, const std::string& name,
                       std::vector<GgufPair>& values) {
  values.push_back(gguf_count(name + ".rope.dimension_count", head_size(model)));
  values.push_back(gguf_number(name + ".rope.freq_base", model.rope_theta));
  if (model.window_rope_theta > 0)
    values.push_back(gguf_number(name + ".rope.freq_base_swa", model.window_rope_theta));
  const RotaryScaling scaling = model.rope_scaling.resolved(model.context);
  if (scaling.type != "linear" && scaling.type != "yarn") return;
  values.push_back(gguf_text(name + ".rope.scaling.type", scaling.type));
  values.push_back(gguf_number(name + ".rope.scaling.factor", scaling.factor));
  if (scaling.type == "yarn")
    values.push_back(
        gguf_count(name + ".rope.scaling.original_context_length", scaling.original_context));
}

void add_gemma_values(const ModelConfig& model, const std::string& name,
                      std::vector<GgufPair>& values) {
  values.push_back(gguf_count(name + ".attention.sliding_window", model.window));
  std::vector<bool> has_window;
  for (std::int64_t i = 0; i < model.layers; ++i)
    has_window.push_back(kind_of_layer(model.window_layers, i) == 'w');
  values.push_back(gguf_flags(name + ".attention.sliding_window_pattern", has_window));
  if (model.attention_cap > 0)
    values.push_back(gguf_number(name + ".attn_logit_softcapping", model.attention_cap));
  if (model.logit_cap > 0)
    values.push_back(gguf_number(name + ".final_logit_softcapping", model.logit_cap));
}

}  // namespace

std::string gguf_architecture(const ModelConfig& model) {
  const GgufArchitecture* found = gguf_architecture_of_family(model.family);
  if (found == nullptr) {
    throw DataError(concat("models of the family ", model.family, " are not written as GGUF here; ",
                           "want one of ", gguf_families_text(),
                           ", or export a Hugging Face folder"));
  }
  if (model.attention_pattern.is_on())
    refuse("attention_pattern", "on", "llama.cpp lets attention see all tokens before");
  if (model.rotary_share != 1 && model.family != "gpt2")
    refuse("rotary_share", concat(model.rotary_share), "llama.cpp turns whole heads");
  if (model.family == "qwen3" && model.attention_bias)
    refuse("attention_bias", "true", "llama.cpp's Qwen3 has no biases");
  check_scaling(model.rope_scaling);
  if (found->is_gemma) check_gemma(model);
  return std::string(found->name);
}

std::vector<GgufPair> gguf_model_values(const ModelConfig& model, const std::string& file) {
  const std::string name = gguf_architecture(model);
  const bool is_gpt2 = model.family == "gpt2";
  std::vector<GgufPair> values{
      gguf_count(name + ".block_count", model.layers),
      gguf_count(name + ".context_length", model.context),
      gguf_count(name + ".embedding_length", model.width),
      gguf_count(name + ".feed_forward_length",
                 model.inner_width > 0 ? model.inner_width : 4 * model.width),
      gguf_count(name + ".attention.head_count", model.heads),
      gguf_count(name + ".attention.head_count_kv", key_heads(model)),
      gguf_number(
          name + (is_gpt2 ? ".attention.layer_norm_epsilon" : ".attention.layer_norm_rms_epsilon"),
          model.norm_epsilon),
      gguf_count(name + ".vocab_size", model.vocabulary)};
  if (is_gpt2) return values;
  values.push_back(gguf_count(name + ".attention.key_length", head_size(model)));
  values.push_back(gguf_count(name + ".attention.value_length", head_size(model)));
  add_rotary_values(model, name, values);
  if (gguf_architecture_of_family(model.family)->is_gemma) {
    add_gemma_values(model, name, values);
  } else if (model.window > 0 && model.window < model.context) {
    warn(file,
         concat("llama.cpp knows no window of this architecture (model.window is ", model.window,
                "): from there on it sees more than the model was trained for"));
  }
  return values;
}

GgufName name_of_tensor(const ModelConfig& model, const std::string& in_folder) {
  return gguf_name(*gguf_architecture_of_family(model.family), model.heads, key_heads(model),
                   in_folder);
}

std::vector<float> rotary_divisors(const ModelConfig& model) {
  const RotaryScaling scaling = model.rope_scaling.resolved(model.context);
  if (scaling.type != "llama3") return {};
  return llama3_divisors({.head_size = head_size(model),
                          .theta = model.rope_theta,
                          .factor = scaling.factor,
                          .low_frequency = scaling.low_frequency,
                          .high_frequency = scaling.high_frequency,
                          .original_context = scaling.original_context});
}

}  // namespace hybrid_trainer
