#include <charconv>
#include <cmath>
#include <type_traits>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/files/foreign_files.h"
#include "src/gguf/gguf_special_tokens.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/gguf/gguf_names.h"
#include "src/models/hugging_face/config_reader.h"

namespace hybrid_trainer {

namespace {

namespace json = boost::json;

constexpr const char* kTokenTypes = "token_types.weight";

/// Returns the intended decimal number: files store f32, which cannot represent 1e-6.
double as_written(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), static_cast<float>(value));
  double meant = value;
  std::from_chars(text, end.ptr, meant);
  return static_cast<float>(meant) == static_cast<float>(value) ? meant : value;
}

json::value json_of_value(const GgufValue& value) {
  return std::visit(
      [&](const auto& held) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(held)>>) {
          return json::value(held);
        } else if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::string>) {
          return json::value(held);
        } else {
          json::array list;
          for (std::size_t i = 0; i < held.size(); ++i) list.emplace_back(held[i]);
          return json::value(std::move(list));
        }
      },
      value.content);
}

/// Converts an architecture's values to the keys of transformers' classes.
class ConfigOfFile {
 public:
  ConfigOfFile(const GgufFile& file, const ModelFamily& family) : file_(file), family_(family) {}

  json::object read() {
    config_["model_type"] = family_.hugging_face.model_type;
    check_length();
    if (is_gguf_encoder(family_.gguf.architecture)) {
      family_.gguf.architecture == kModernBert ? read_modern_bert() : read_bert();
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
  /// Returns the full key, and marks it as read.
  std::string key(const char* name) const {
    read_.insert(name);
    return concat(family_.gguf.architecture, ".", name);
  }
  /// Throws DataError if an unread key would change results; warns of unknown keys.
  void check_unread() const {
    const std::string prefix = concat(family_.gguf.architecture, ".");
    json::object values;
    for (const auto& [name, value] : file_.values())
      if (name.starts_with(prefix)) values[name.substr(prefix.size())] = json_of_value(value);
    const UnreadKeys unread = sort_unread_keys(values, ForeignFile::kGguf, read_);
    if (!unread.problems.empty())
      refuse(concat(prefix, join(unread.problems, ("; " + prefix).c_str())));
    std::vector<std::string> unknown;
    for (const std::string& name : unread.unknown) unknown.push_back(prefix + name);
    warn_of_unknown_keys(file_.path().string(), unknown);
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(
        concat(file_.path().string(), ": ", what, "; use the model's Hugging Face folder instead"));
  }
  [[noreturn]] void refuse_missing(const char* name) const {
    throw DataError(concat(file_.path().string(), ": ", key(name), " is missing; copy the file ",
                           "again, or convert the model again"));
  }
  std::int64_t count(const char* name) const {
    const auto found = file_.count(key(name));
    if (!found) refuse_missing(name);
    return *found;
  }
  double number(const char* name) const {
    const auto found = file_.number(key(name));
    if (!found) refuse_missing(name);
    return as_written(*found);
  }
  std::int64_t count(const char* name, std::int64_t missing) const {
    return file_.count(key(name)).value_or(missing);
  }
  double number(const char* name, double missing) const {
    return as_written(file_.number(key(name)).value_or(missing));
  }

  void check_length() const {
    if (const auto experts = file_.count(key("expert_count")); experts && *experts > 0)
      refuse(
          concat("is a mixture of ", *experts, " experts, which is not supported in GGUF files"));
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

  // Source: llama.cpp, src/models/modern-bert.cpp. The window counts both sides.
  void read_modern_bert() {
    const std::int64_t heads = read_heads_of_encoder(), width = count("embedding_length");
    const std::int64_t layers = count("block_count"), window = count("attention.sliding_window", 0);
    if (heads < 1) refuse(concat(key("attention.head_count"), " is ", heads));
    if (layers < 1 || layers > kMaxLayers)
      refuse(concat(key("block_count"), " is ", layers, ", want 1 to ", kMaxLayers));
    read_head_size(width / heads);
    config_.erase("head_dim");
    if (!read_scaling().empty()) refuse("scales its rotary angles");
    const std::string activation = file_.text(key("hidden_activation")).value_or("gelu");
    if (activation != "gelu")
      refuse(concat(key("hidden_activation"), " is ", activation, ", want gelu"));
    config_["vocab_size"] = vocabulary();
    config_["num_hidden_layers"] = layers;
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
    json::array types;
    for (const bool has_window : windows(layers, 3, /*full_is_last=*/false))
      types.emplace_back(has_window && window > 0 ? "sliding_attention" : "full_attention");
    config_["layer_types"] = std::move(types);
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

  /// Reads the names of classes. The head is the product of the first token with cls, tanh, and the
  /// product with cls.output.
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
    config_["intermediate_size"] = count("feed_forward_length");
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
    if (family_.gguf.refuses_window) refuse_window();
  }

  /// Reads the layers from the number of key heads of each. Source: llama.cpp, LFM2.
  void read_short_convolutions() {
    const std::int64_t layers = checked_layers();
    const std::vector<std::int64_t> keys = file_.counts(key("attention.head_count_kv"));
    if (std::ssize(keys) != layers)
      refuse(concat(key("attention.head_count_kv"), " has ", keys.size(), " elements for ", layers,
                    " layers"));
    const std::int64_t most = *std::ranges::max_element(keys);
    json::array types;
    for (const std::int64_t heads : keys) {
      if (heads != 0 && heads != most) refuse("its layers have different numbers of key heads");
      types.emplace_back(heads == 0 ? "conv" : "full_attention");
    }
    config_["layer_types"] = std::move(types);
    config_["num_key_value_heads"] = std::max<std::int64_t>(most, 1);
    config_["conv_L_cache"] = count("shortconv.l_cache");
    config_["block_auto_adjust_ff_dim"] = false;
    config_["norm_eps"] = config_["rms_norm_eps"];
    config_.erase("rms_norm_eps");
  }

  std::int64_t checked_layers() const {
    const std::int64_t layers = count("block_count");
    if (layers < 1 || layers > kMaxLayers)
      refuse(concat(key("block_count"), " is ", layers, ", want 1 to ", kMaxLayers));
    return layers;
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

  /// Sets the keys for biases, if any. Qwen 2 has none, because its class always uses biases.
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
    if (scaling.empty() && family_.gguf.scales_queries) scaling["rope_type"] = "default";
    if (!scaling.empty()) config_["rope_scaling"] = std::move(scaling);
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
    if (type == "yarn")
      scaling["original_max_position_embeddings"] = original == 0 ? context : original;
    if (type == "yarn" && family_.gguf.scales_queries) read_query_scales(scaling);
    return scaling;
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
    if (const GgufValue* rotates = file_.find(key("rope.scaling.finetuned"));
        rotates != nullptr && json_of_value(*rotates) == json::value(false))
      refuse("does not rotate queries and keys (rope.scaling.finetuned is false)");
  }

  void refuse_window() {
    if (const std::int64_t window = count("attention.sliding_window", 0); window > 0)
      refuse(concat("has windows of ", window, " tokens (attention.sliding_window)"));
    config_["sliding_window"] = nullptr;
  }

  // Source: llama.cpp, src/llama-model.cpp, gemma2 and gemma3.
  void read_gemma(const GgufLayout::Gemma& gemma) {
    const std::int64_t layers = checked_layers();
    const bool is_27b = layers == gemma.layers_of_27b;
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
    config_["sliding_window"] = count("attention.sliding_window", gemma.always_caps ? 4096 : 0);
    json::array types;
    for (const bool has_window : windows(layers, gemma.window_period))
      types.emplace_back(has_window ? "sliding_attention" : "full_attention");
    config_["layer_types"] = std::move(types);
  }

  /// Returns whether each layer has a window. The pattern in the file is a list, or the period at
  /// which layers with full attention repeat. Without a list, that layer is the last or the
  /// first of a period.
  std::vector<bool> windows(std::int64_t layers, std::int64_t usual,
                            bool full_is_last = true) const {
    const std::string name = key("attention.sliding_window_pattern");
    const GgufValue* value = file_.find(name);
    if (value != nullptr && value->is_array()) {
      std::vector<bool> found =
          value->kind == GgufKind::kBool ? file_.flags(name) : std::vector<bool>();
      if (value->kind != GgufKind::kBool)
        for (const std::int64_t one : file_.counts(name)) found.push_back(one != 0);
      if (static_cast<std::int64_t>(found.size()) < layers)
        refuse(concat(name, " has ", found.size(), " elements for ", layers, " layers"));
      found.resize(static_cast<std::size_t>(layers));
      return found;
    }
    const std::int64_t period = count("attention.sliding_window_pattern", usual);
    if (period < 1) refuse(concat(name, " is ", period));
    std::vector<bool> found;
    for (std::int64_t i = 0; i < layers; ++i)
      found.push_back(full_is_last ? i % period < period - 1 : i % period > 0);
    return found;
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
  mutable std::set<std::string> read_;  // keys without the prefix of the architecture
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

/// Rejects models split into several files, of which only the first has values.
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
  std::vector<std::string> known;
  for (const ModelFamily& family : model_families()) {
    const std::string& architecture = family.gguf.architecture;
    if (architecture.empty() || std::ranges::count(known, architecture) > 0) continue;
    if (architecture == name)
      return ConfigOfFile(file, name == "bert" ? encoder_family(file) : family).read();
    known.push_back(architecture);
  }
  throw DataError(concat(file.path().string(), ": has the architecture \"", name,
                         "\", but only these are supported in GGUF files: ", join(known),
                         "; use the model's Hugging Face folder instead"));
}

}  // namespace hybrid_trainer
