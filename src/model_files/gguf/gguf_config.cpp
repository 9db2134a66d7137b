#include <cmath>

#include "hybrid_trainer/models/model_family.h"
#include "src/gguf/gguf_special_tokens.h"
#include "src/model_files/gguf/gguf_keys.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/gguf/gguf_names.h"
#include "src/models/hugging_face/config_reader.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kTokenTypes = "token_types.weight";

/// Converts an architecture's values to the keys of transformers' classes.
class ConfigOfFile : GgufKeys {
 public:
  ConfigOfFile(const GgufFile& file, const ModelFamily& family, const std::string& architecture)
      : GgufKeys(file, architecture), file_(file), family_(family) {}

  json::object read() {
    config_["model_type"] = family_.hugging_face.model_type;
    check_length();
    if (is_gguf_encoder(architecture())) {
      architecture() == kModernBert ? read_modern_bert() : read_bert();
    } else if (family_.has("gemma4")) {
      for (auto& [key, value] : gemma4_config(*this)) config_[key] = std::move(value);
    } else if (family_.has("rope_theta")) {
      read_rotary();
    } else {
      read_gpt2();
    }
    add_token_ids();
    check_unread();
    return std::move(config_);
  }

 private:
  void check_length() const {
    const std::int64_t experts = count("expert_count", 0);
    if (experts > 0 && !family_.gguf.experts)
      refuse(concat("is a mixture of ", experts,
                    " experts, which is not supported in files of the ", "architecture ",
                    architecture()));
    if (const std::int64_t groups = count("expert_group_count", 0); groups > 1)
      refuse(concat("chooses among ", groups, " groups of experts (expert_group_count)"));
  }
  std::int64_t vocabulary() const { return file_.tensor("token_embd.weight").shape[0]; }

  void read_gpt2() {
    config_["vocab_size"] = vocabulary();
    config_["n_layer"] = count("block_count");
    config_["n_positions"] = count("context_length");
    config_["n_embd"] = count("embedding_length");
    config_["n_head"] = count("attention.head_count");
    config_["n_inner"] = count("feed_forward_length");
    config_["layer_norm_epsilon"] = number("attention.layer_norm_epsilon");
    if (own_head(file_) != nullptr)
      refuse("its output.weight differs from its token table, but GPT-2 ties both");
  }

  /// Returns the number of heads, after checking that all tokens attend to each other.
  std::int64_t read_heads_of_encoder() const {
    const std::int64_t heads = count("attention.head_count");
    if (file_.flag(key("attention.causal")).value_or(true))
      refuse(concat(key("attention.causal"), " is not false, but encoders attend to all tokens"));
    if (count("attention.head_count_kv", heads) != heads)
      refuse(concat(key("attention.head_count_kv"), " is ", count("attention.head_count_kv"),
                    ", want ", heads, ", the number of heads"));
    return heads;
  }

  // Source: llama.cpp, src/models/modern-bert.cpp. The file's window counts tokens on both sides.
  void read_modern_bert() {
    const std::int64_t heads = read_heads_of_encoder(), width = count("embedding_length");
    const std::int64_t window = count("attention.sliding_window", 0);
    if (heads < 1) refuse(concat(key("attention.head_count"), " is ", heads));
    read_head_size(width / heads);
    config_.erase("head_dim");
    if (!read_scaling().empty()) refuse("scales its rotary angles");
    const std::string activation = file_.text(key("hidden_activation")).value_or("gelu");
    if (activation != "gelu")
      refuse(concat(key("hidden_activation"), " is ", activation, ", want gelu"));
    config_["vocab_size"] = vocabulary();
    config_["num_hidden_layers"] = layers();
    config_["num_attention_heads"] = heads;
    config_["hidden_size"] = width;
    config_["intermediate_size"] = count("feed_forward_length");
    config_["max_position_embeddings"] = count("context_length");
    // llama.cpp's converter uses the second key if config.json has only norm_eps.
    const double epsilon = number("attention.layer_norm_rms_epsilon", 1e-5);
    config_["norm_eps"] = number("attention.layer_norm_epsilon", epsilon);
    config_["global_rope_theta"] = number("rope.freq_base", 1e4);
    config_["local_rope_theta"] = number("rope.freq_base_swa", number("rope.freq_base", 1e4));
    if (window > 0) config_["local_attention"] = window;
    std::vector<bool> has_window = windows(layers(), 3, /*full_is_last=*/false);
    if (window == 0) has_window.assign(has_window.size(), false);
    config_["layer_types"] = layer_types_of(has_window);
    key("classifier.pooling_type");  // of the class head
    if (file_.find_tensor("cls.output.weight") != nullptr)
      refuse("classifies texts, which is supported only for BERT and RoBERTa");
  }

  // Source: llama.cpp, src/models/bert.cpp and conversion/bert.py.
  void read_bert() {
    const std::int64_t heads = read_heads_of_encoder();
    const bool is_distilled = family_.name == "distilbert";
    const auto set = [&](const char* usual, const char* distilled, std::int64_t value) {
      config_[is_distilled ? distilled : usual] = value;
    };
    set("num_hidden_layers", "n_layers", count("block_count"));
    set("num_attention_heads", "n_heads", heads);
    set("hidden_size", "dim", count("embedding_length"));
    set("intermediate_size", "hidden_dim", count("feed_forward_length"));
    config_["vocab_size"] = vocabulary();
    const bool has_padding = family_.name == "roberta" || family_.name == "xlm-roberta";
    config_["max_position_embeddings"] = count("context_length") + (has_padding ? 2 : 0);
    const double epsilon = number("attention.layer_norm_epsilon");
    if (!is_distilled) {
      config_["layer_norm_eps"] = epsilon;
      config_["type_vocab_size"] = file_.tensor(kTokenTypes).shape[0];
    } else if (epsilon != kDistilBertEpsilon) {
      refuse(concat("has no ", kTokenTypes, ", like DistilBERT, but ",
                    key("attention.layer_norm_epsilon"), " is ", epsilon, ", want ",
                    kDistilBertEpsilon));
    }
    read_classes();
  }

  /// Reads the names of classes. The head computes cls.output · tanh(cls · x) from the first token
  /// x.
  void read_classes() {
    const GgufTensor* last = file_.find_tensor("cls.output.weight");
    std::vector<std::string> names = file_.texts(key("classifier.output_labels"));
    if (last == nullptr) return;
    if (file_.find_tensor("cls.weight") == nullptr || family_.name == "distilbert")
      refuse("classifies texts by cls.output.weight without cls.weight");
    names.resize(static_cast<std::size_t>(last->shape[0]));
    json::object labels;
    for (std::size_t i = 0; i < names.size(); ++i)
      labels[std::to_string(i)] = names[i].empty() ? concat("LABEL_", i) : names[i];
    config_["architectures"] = json::array{"ModelForSequenceClassification"};
    config_["id2label"] = std::move(labels);
  }

  void read_rotary() {
    const std::int64_t heads = count("attention.head_count");
    const std::int64_t width = count("embedding_length");
    if (heads < 1 || width < 1) refuse(concat(key("attention.head_count"), " is ", heads));
    config_["rms_norm_eps"] = number("attention.layer_norm_rms_epsilon");
    config_["vocab_size"] = vocabulary();
    config_["num_hidden_layers"] = count("block_count");
    config_["max_position_embeddings"] = count("context_length");
    config_["hidden_size"] = width;
    if (!family_.gguf.experts || !family_.gguf.experts->has_own_size)
      config_["intermediate_size"] = count("feed_forward_length");
    else if (const std::int64_t size = count("feed_forward_length", 0); size > 0)
      config_["intermediate_size"] = size;
    config_["num_attention_heads"] = heads;
    if (family_.gguf.has_short_convolutions) {
      read_short_convolutions();
    } else {
      config_["num_key_value_heads"] = count("attention.head_count_kv", heads);
    }
    config_["tie_word_embeddings"] = own_head(file_) == nullptr;
    read_head_size(width / heads);
    read_biases();
    read_rotation();
    if (family_.has("residual_scale")) read_scales();
    if (family_.gguf.gemma) read_gemma(*family_.gguf.gemma);
    if (family_.gguf.experts) read_experts(*family_.gguf.experts);
    if (family_.gguf.delta_rule) read_delta_rule(*family_.gguf.delta_rule);
    if (has_gguf_windows(family_.gguf, layers())) {
      read_windows();
    } else if (family_.gguf.refuses_window) {
      refuse_window();
    }
  }

  // Source: llama.cpp, src/llama-graph.cpp, build_moe_ffn. Few architectures have keys for the
  // weights of experts.
  void read_experts(const GgufLayout::Experts& layout) {
    config_[layout.count_key] = count("expert_count");
    config_["num_experts_per_tok"] = count("expert_used_count");
    config_[layout.size_key] =
        count(layout.has_own_size ? "expert_feed_forward_length" : "feed_forward_length");
    if (!layout.rule_key.empty())
      config_[layout.rule_key] = layout.rule == kSoftmaxOfChosenRule || layout.rule == kSigmoidRule;
    const std::int64_t shared = count("expert_shared_feed_forward_length", 0);
    if (!layout.shared_size_key.empty()) {
      config_[layout.shared_size_key] = shared > 0 ? shared : count("feed_forward_length");
    } else if (shared > 0) {
      refuse(
          concat("has a shared expert of width ", shared, " (expert_shared_feed_forward_length)"));
    }
    if (layout.gating_function > 0 && count("expert_gating_func") != layout.gating_function)
      refuse(concat(key("expert_gating_func"), " is ", count("expert_gating_func"), ", want ",
                    layout.gating_function));
    if (!layout.dense_layers_key.empty())
      config_[layout.dense_layers_key] = count("leading_dense_block_count", 0);
  }

  // Source: llama.cpp, src/models/qwen3next.cpp and qwen35moe.cpp.
  void read_delta_rule(const GgufLayout::DeltaRule& layout) {
    const std::int64_t heads = count("ssm.time_step_rank"), channels = count("ssm.inner_size");
    if (heads < 1 || channels % heads != 0)
      refuse(concat(key("ssm.inner_size"), " is ", channels, ", want a multiple of ", heads,
                    ", the value of ssm.time_step_rank"));
    config_["linear_conv_kernel_dim"] = count("ssm.conv_kernel");
    config_["linear_key_head_dim"] = count("ssm.state_size");
    config_["linear_num_key_heads"] = count("ssm.group_count");
    config_["linear_num_value_heads"] = heads;
    config_["linear_value_head_dim"] = channels / heads;
    const std::int64_t interval = count("full_attention_interval", 4);
    if (interval < 1) refuse(concat(key("full_attention_interval"), " is ", interval));
    const std::string name = key("attention.recurrent_layers");
    const std::vector<bool> listed = file_.flags(name);
    if (!listed.empty() && std::ssize(listed) != layers())
      refuse(concat(name, " has ", listed.size(), " elements for ", layers(), " layers"));
    json::array types;
    for (std::int64_t i = 0; i < layers(); ++i) {
      const bool is_recurrent =
          listed.empty() ? (i + 1) % interval != 0 : bool(listed[static_cast<std::size_t>(i)]);
      types.emplace_back(is_recurrent ? "linear_attention" : "full_attention");
    }
    config_["layer_types"] = std::move(types);
    if (layout.tiles_heads) key("rope.dimension_sections");  // of image positions
  }

  /// Derives each layer's type from its number of key heads. Source: llama.cpp, LFM2.
  void read_short_convolutions() {
    const std::vector<std::int64_t> keys = counts_of_layers("attention.head_count_kv");
    const std::int64_t most = *std::ranges::max_element(keys);
    json::array types;
    for (const std::int64_t heads : keys) {
      if (heads != 0 && heads != most) refuse("its layers have different numbers of key heads");
      types.emplace_back(heads == 0 ? "conv" : "full_attention");
    }
    config_["layer_types"] = std::move(types);
    config_["num_key_value_heads"] = std::max<std::int64_t>(most, 1);
    config_["conv_L_cache"] = count("shortconv.l_cache");
    if (!family_.gguf.experts) config_["block_auto_adjust_ff_dim"] = false;
    config_["norm_eps"] = config_["rms_norm_eps"];
    config_.erase("rms_norm_eps");
  }

  void read_head_size(std::int64_t usual) {
    head_size_ = count("attention.key_length", usual);
    if (count("attention.value_length", head_size_) != head_size_)
      refuse("keys and values of attention differ in size");
    const std::int64_t turned = count("rope.dimension_count", head_size_);
    if (family_.gguf.rotates_share) {
      config_["partial_rotary_factor"] = share_of(turned);
    } else if (turned != head_size_)
      refuse(concat("rotates ", turned, " of the ", head_size_, " channels of a head"));
    config_["head_dim"] = head_size_;
  }

  /// Returns a share for which trunc(share·head_size) = channels.
  double share_of(std::int64_t channels) const {
    const auto size = static_cast<double>(head_size_), turned = static_cast<double>(channels);
    return std::trunc(turned / size * size) == turned ? turned / size : (turned + 0.5) / size;
  }

  /// Sets config.json's keys for biases, if it has any: Qwen 2 always uses biases and has no key.
  void read_biases() {
    const bool of_queries = file_.find_tensor("blk.0.attn_q.bias") != nullptr;
    if (!family_.has("attention_bias")) return;
    if (of_queries && family_.gguf.has_output_bias &&
        file_.find_tensor("blk.0.attn_output.bias") == nullptr)
      refuse("has query biases but no bias of attention's output");
    config_["attention_bias"] = of_queries;
    if (family_.has("mlp_bias"))
      config_["mlp_bias"] = file_.find_tensor("blk.0.ffn_up.bias") != nullptr;
  }

  void read_rotation() {
    const double theta = number("rope.freq_base", 1e4);
    config_["rope_theta"] = theta;
    if (file_.find_tensor("rope_factors_long.weight") != nullptr) return read_longrope();
    json::object scaling = read_scaling();
    if (const GgufTensor* divisors = file_.find_tensor("rope_freqs.weight")) {
      if (!scaling.empty()) refuse("scales its rotary angles twice, by a factor and by rope_freqs");
      return read_divisors(*divisors, theta);
    }
    const bool needs_scaling = family_.gguf.scales_queries || family_.gguf.keeps_yarn_bounds;
    if (scaling.empty() && needs_scaling) scaling["rope_type"] = "default";
    if (family_.has("window_rope_theta") && !family_.gguf.gemma)
      return read_angles_by_layers(theta, std::move(scaling));
    if (!scaling.empty()) config_["rope_scaling"] = std::move(scaling);
  }

  // Source: llama.cpp, src/models/olmo2.cpp: sliding-window layers have the same base and no
  // scaling.
  void read_angles_by_layers(double theta, json::object full) {
    if (const double of_windows = number("rope.freq_base_swa", theta); of_windows != theta)
      refuse(concat(key("rope.freq_base_swa"), " is ", of_windows, ", want ", theta,
                    ", the value of rope.freq_base"));
    if (full.empty()) full["rope_type"] = "default";
    full["rope_theta"] = theta;
    config_["rope_parameters"] = json::object{
        {"full_attention", std::move(full)},
        {"sliding_attention", json::object{{"rope_type", "default"}, {"rope_theta", theta}}}};
  }

  json::array factors(const char* name) const {
    const Tensor values = file_.values_of(file_.tensor(name));
    json::array factors;
    for (std::int64_t i = 0; i < values.elements(); ++i)
      factors.emplace_back(as_written(values.data<float>()[i]));
    return factors;
  }

  void read_longrope() {
    config_["original_max_position_embeddings"] = count("rope.scaling.original_context_length");
    config_["rope_scaling"] =
        json::object{{"type", "longrope"},
                     {"long_factor", factors("rope_factors_long.weight")},
                     {"short_factor", factors("rope_factors_short.weight")},
                     {"attention_factor", number("rope.scaling.attn_factor", 1)}};
  }

  /// Returns the rotary scaling, or an empty object if there is none. Uses llama.cpp's defaults:
  /// linear, from the whole context.
  json::object read_scaling() const {
    const std::string type = file_.text(key("rope.scaling.type")).value_or("linear");
    const double factor = number("rope.scaling.factor", number("rope.scale_linear", 0));
    const std::int64_t context = count("context_length");
    const std::int64_t original = count("rope.scaling.original_context_length", context);
    if (type != "none" && type != "linear" && type != "yarn")
      refuse(concat(key("rope.scaling.type"), " is \"", type, "\", want none, linear or yarn"));
    const bool is_plain = factor == 0 || factor == 1;
    if (type == "none" || (type == "linear" && is_plain)) return {};
    json::object scaling{{"rope_type", type}, {"factor", is_plain ? 1 : factor}};
    if (type == "yarn") {
      scaling["original_max_position_embeddings"] = original == 0 ? context : original;
      check_amplitude(scaling["factor"].to_number<double>());
    }
    if (type == "yarn" && family_.gguf.scales_queries) read_query_scales(scaling);
    if (type == "yarn" && family_.gguf.keeps_yarn_bounds) scaling["truncate"] = false;
    return scaling;
  }

  /// llama.cpp computes the amplitude of YaRN itself, and ignores the value in the file.
  void check_amplitude(double factor) const {
    const double usual = 0.1 * std::log(factor) + 1;
    const double amplitude = number("rope.scaling.yarn_attn_factor", 1);
    if (amplitude != 1 && std::abs(amplitude - usual) > 1e-6)
      refuse(
          concat(key("rope.scaling.yarn_attn_factor"), " is ", amplitude, ", want 1 or ", usual));
  }

  // Source: llama.cpp, conversion/mistral.py and src/models/mistral3.cpp.
  void read_query_scales(json::object& scaling) const {
    scaling["llama_4_scaling_beta"] = number("attention.temperature_scale", 0);
    const double multiplier = number("rope.scaling.yarn_log_multiplier", 0);
    if (multiplier == 0) return;
    if (multiplier != 1)
      refuse(concat(key("rope.scaling.yarn_log_multiplier"), " is ", multiplier, ", want 0 or 1"));
    scaling["mscale"] = scaling["mscale_all_dim"] = multiplier;
  }

  void read_divisors(const GgufTensor& tensor, double theta) {
    const Tensor values = file_.values_of(tensor);
    const auto scaling = llama3_scaling_of(
        {values.data<float>(), static_cast<std::size_t>(values.elements())}, theta);
    if (!scaling || 2 * values.elements() != head_size_)
      refuse("its rope_freqs.weight differs from Llama 3's frequency factors");
    config_["rope_scaling"] =
        json::object{{"rope_type", "llama3"},
                     {"factor", scaling->factor},
                     {"low_freq_factor", scaling->low_frequency},
                     {"high_freq_factor", scaling->high_frequency},
                     {"original_max_position_embeddings", scaling->original_context}};
  }

  // Source: llama.cpp, src/models/granite.cpp: 0 means no factor.
  void read_scales() {
    const auto factor = [&](const char* name, double without) {
      const double value = number(name, 0);
      return value == 0 ? without : value;
    };
    config_["attention_multiplier"] =
        factor("attention.scale", 1 / std::sqrt(static_cast<double>(head_size_)));
    config_["embedding_multiplier"] = factor("embedding_scale", 1);
    config_["residual_multiplier"] = factor("residual_scale", 1);
    config_["logits_scaling"] = factor("logit_scale", 1);
    if (!file_.flag(key("rope.scaling.finetuned")).value_or(true))
      refuse("does not rotate queries and keys (rope.scaling.finetuned is false)");
  }

  void refuse_window() {
    if (const std::int64_t window = count("attention.sliding_window", 0); window > 0)
      refuse(concat("has windows of ", window, " tokens (attention.sliding_window)"));
    config_["sliding_window"] = nullptr;
  }

  // Source: llama.cpp, src/llama-model.cpp, gemma2 and gemma3.
  void read_gemma(const GgufLayout::Gemma& gemma) {
    const bool is_27b = layers() == gemma.layers_of_27b;
    config_["query_pre_attn_scalar"] =
        is_27b ? count("embedding_length") / count("attention.head_count") : head_size_;
    if (gemma.always_caps) {
      config_["attn_logit_softcapping"] = number("attn_logit_softcapping", 50);
      config_["final_logit_softcapping"] = number("final_logit_softcapping", 30);
    } else {
      if (const double cap = number("final_logit_softcapping", 0); cap > 0)
        config_["final_logit_softcapping"] = cap;
      config_["rope_local_base_freq"] = number("rope.freq_base_swa", 1e4);
    }
    if (architecture() == kGemmaEmbedding) {
      config_["use_bidirectional_attention"] = true;
      for (const char* size :  // the tensors have them
           {"dense_2_feat_in", "dense_2_feat_out", "dense_3_feat_in", "dense_3_feat_out"})
        key(size);
    }
  }

  void read_windows() {
    const GgufLayout& layout = family_.gguf;
    const bool is_gemma3 = layout.gemma && !layout.gemma->always_caps;
    config_["sliding_window"] = count("attention.sliding_window", is_gemma3 ? 0 : 4096);
    config_["layer_types"] = layer_types_of(windows(layers(), layout.window_period));
  }

  void add_token_ids() {
    const GgufSpecialTokens special = read_gguf_special_tokens(file_);
    const bool is_bert = file_.text("tokenizer.ggml.model") == "bert";
    for (const char* role : {"bos", "eos", "pad"}) {
      const bool is_of_pieces = is_bert && std::string_view(role) != "pad";  // [CLS] and [SEP]
      const auto* token = special.find(role);
      if (token != nullptr && !is_of_pieces) config_[concat(role, "_token_id")] = token->id;
    }
  }

  const GgufFile& file_;
  const ModelFamily& family_;
  json::object config_;
  std::int64_t head_size_ = 0;
};

/// Returns the family of an encoder's file. Only DistilBERT has no token types, and RoBERTa splits
/// texts by BPE or unigrams.
const ModelFamily& encoder_family(const GgufFile& file) {
  const std::string kind = file.text("tokenizer.ggml.model").value_or("");
  return find_family(file.find_tensor(kTokenTypes) == nullptr ? "distilbert"
                     : kind == "gpt2"                         ? "roberta"
                     : kind == "t5"                           ? "xlm-roberta"
                                                              : "bert");
}

/// Rates how well a family with the file's architecture fits. Experts count more than windows.
int fit_of(const GgufFile& file, const ModelFamily& family) {
  const auto has = [&](const char* key) {
    const std::string name = concat(family.gguf.architecture, ".", key);
    const GgufValue* value = file.find(name);
    return value != nullptr && !value->is_array() && file.count(name).value_or(0) > 0;
  };
  const bool experts_fit = has("expert_count") == family.gguf.experts.has_value();
  const bool windows_fit = has("attention.sliding_window") == (family.gguf.window_period > 0);
  return (experts_fit ? 2 : 0) + (windows_fit ? 1 : 0);
}

bool are_equal(const GgufFile& file, const GgufTensor& a, const GgufTensor& b) {
  if (a.type != b.type || a.shape != b.shape) return false;
  constexpr std::size_t kChunk = std::size_t{1} << 22;
  std::string part_a(kChunk, '\0'), part_b(kChunk, '\0');
  for (std::size_t at = 0; at < a.bytes(); at += kChunk) {
    const std::size_t bytes = std::min(kChunk, a.bytes() - at);
    file.input().read_at(part_a.data(), bytes, a.offset + at);
    file.input().read_at(part_b.data(), bytes, b.offset + at);
    if (part_a.compare(0, bytes, part_b, 0, bytes) != 0) return false;
  }
  return true;
}

/// Rejects models split into several files, because only the first one has the values.
void check_whole(const GgufFile& file) {
  const std::int64_t parts = file.count("split.count").value_or(1);
  if (parts > 1)
    throw DataError(concat(file.path().string(), ": is one of ", parts, " files of a model; join ",
                           "them first: llama-gguf-split --merge FIRST.gguf WHOLE.gguf"));
  const std::string type = file.text("general.type").value_or("model");
  if (type != "model")
    throw DataError(concat(file.path().string(), ": contains \"", type,
                           "\" (general.type) instead of a model; give the model's own file"));
}

}  // namespace

const GgufTensor* own_head(const GgufFile& file) {
  const GgufTensor* head = file.find_tensor("output.weight");
  return head == nullptr || are_equal(file, *head, file.tensor("token_embd.weight")) ? nullptr
                                                                                     : head;
}

std::vector<DenseLayer> gguf_dense(const GgufFile& file) {
  std::vector<DenseLayer> layers;
  for (std::int64_t i = 0; i < kMaxGgufDense; ++i) {
    const GgufTensor* const weight = file.find_tensor(gguf_dense_name(i) + ".weight");
    if (weight == nullptr || weight->shape.rank() != 2) break;
    layers.push_back({.outputs = weight->shape[0]});
  }
  return layers;
}

std::string gguf_pooling(const GgufFile& file) {
  const std::string key = concat(file.text("general.architecture").value_or(""), ".pooling_type");
  const std::int64_t number = file.count(key).value_or(0);
  if (number == kRankPooling) return "";
  const auto pooling = pooling_of_number(number);
  if (!pooling)
    throw DataError(concat(file.path().string(), ": ", key, " is ", number, ", want 1 (mean), ",
                           "2 (first token) or 3 (last token)"));
  return *pooling;
}

json::object gguf_config(const GgufFile& file) {
  check_whole(file);
  const std::string name = file.text("general.architecture").value_or("");
  const ModelFamily* found = nullptr;
  std::vector<std::string> known;
  for (const ModelFamily& family : model_families()) {
    const std::string& architecture = family.gguf.architecture;
    if (architecture.empty()) continue;
    const std::string both_ways = gguf_architecture_both_ways(family);
    for (const std::string& one : {architecture, both_ways})
      if (!one.empty() && std::ranges::count(known, one) == 0) known.push_back(one);
    if (name.empty() || (architecture != name && both_ways != name)) continue;
    if (found == nullptr || fit_of(file, family) > fit_of(file, *found)) found = &family;
  }
  if (found != nullptr)
    return ConfigOfFile(file, name == "bert" ? encoder_family(file) : *found, name).read();
  throw DataError(concat(file.path().string(), ": has the architecture \"", name,
                         "\", but only these are supported in GGUF files: ", join(known),
                         "; use the model's Hugging Face folder instead"));
}

}  // namespace hybrid_trainer
