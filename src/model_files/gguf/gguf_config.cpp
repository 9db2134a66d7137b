#include <charconv>
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
    if (family_.has("rope_theta")) {
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
    config_["num_key_value_heads"] = count("attention.head_count_kv", heads);
    config_["tie_word_embeddings"] = own_head(file_) == nullptr;
    read_head_size(width / heads);
    read_biases();
    read_rotation();
    if (family_.gguf.gemma) read_gemma(*family_.gguf.gemma);
  }

  void read_head_size(std::int64_t usual) {
    head_size_ = count("attention.key_length", usual);
    if (count("attention.value_length", head_size_) != head_size_)
      refuse("keys and values of attention differ in size");
    if (count("rope.dimension_count", head_size_) != head_size_)
      refuse(concat("rotates ", count("rope.dimension_count"), " of the ", head_size_,
                    " channels of a head"));
    config_["head_dim"] = head_size_;
  }

  /// Sets the keys for biases, if the family has them. Qwen 2 has none, because its class always
  /// uses biases.
  void read_biases() {
    const bool of_queries = file_.find_tensor("blk.0.attn_q.bias") != nullptr;
    if (!family_.has("attention_bias")) return;
    if (of_queries && file_.find_tensor("blk.0.attn_output.bias") == nullptr)
      refuse("has query biases but no bias of attention's output");
    config_["attention_bias"] = of_queries;
    if (family_.has("mlp_bias"))
      config_["mlp_bias"] = file_.find_tensor("blk.0.ffn_up.bias") != nullptr;
  }

  void read_rotation() {
    const double theta = number("rope.freq_base", 1e4);
    config_["rope_theta"] = theta;
    json::object scaling = read_scaling();
    if (const GgufTensor* divisors = file_.find_tensor("rope_freqs.weight")) {
      if (!scaling.empty()) refuse("scales its rotary angles twice, by a factor and by rope_freqs");
      return read_divisors(*divisors, theta);
    }
    if (!scaling.empty()) config_["rope_scaling"] = std::move(scaling);
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
    return scaling;
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

  // Source: llama.cpp, src/llama-model.cpp, gemma2 and gemma3.
  void read_gemma(const GgufLayout::Gemma& gemma) {
    const std::int64_t layers = count("block_count");
    if (layers < 1 || layers > kMaxLayers)
      refuse(concat(key("block_count"), " is ", layers, ", want 1 to ", kMaxLayers));
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
  /// which layers with full attention repeat.
  std::vector<bool> windows(std::int64_t layers, std::int64_t usual) const {
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
    for (std::int64_t i = 0; i < layers; ++i) found.push_back(i % period < period - 1);
    return found;
  }

  void add_token_ids() {
    const GgufSpecialTokens special = read_gguf_special_tokens(file_);
    for (const char* role : {"bos", "eos", "pad"})
      if (const auto* token = special.find(role)) config_[concat(role, "_token_id")] = token->id;
  }

  const GgufFile& file_;
  const ModelFamily& family_;
  mutable std::set<std::string> read_;  // keys without the prefix of the architecture
  json::object config_;
  std::int64_t head_size_ = 0;
};

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

json::object gguf_config(const GgufFile& file) {
  check_whole(file);
  const std::string name = file.text("general.architecture").value_or("");
  std::vector<std::string> known;
  for (const ModelFamily& family : model_families()) {
    const std::string& architecture = family.gguf.architecture;
    if (architecture.empty() || std::ranges::count(known, architecture) > 0) continue;
    if (architecture == name) return ConfigOfFile(file, family).read();
    known.push_back(architecture);
  }
  throw DataError(concat(file.path().string(), ": has the architecture \"", name,
                         "\", but only these are supported in GGUF files: ", join(known),
                         "; use the model's Hugging Face folder instead"));
}

}  // namespace hybrid_trainer
