#include "src/hugging_face/config_reader.h"

#include <algorithm>
#include <array>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

/// Keys that change nothing that is computed here: names, tokens, generation, outputs.
constexpr std::array kHarmless{"_attn_implementation",
                               "_attn_implementation_autoset",
                               "_name_or_path",
                               "_num_labels",
                               "architectures",
                               "bad_words_ids",
                               "bos_token_id",
                               "cache_implementation",
                               "do_sample",
                               "dtype",
                               "early_stopping",
                               "eos_token_id",
                               "id2label",
                               "initializer_range",
                               "is_llama_config",
                               "label2id",
                               "length_penalty",
                               "max_length",
                               "max_sequence_length",
                               "min_length",
                               "model_type",
                               "name_or_path",
                               "num_beams",
                               "num_return_sequences",
                               "output_attentions",
                               "output_hidden_states",
                               "output_past",
                               "pad_token_id",
                               "predict_special_tokens",
                               "repetition_penalty",
                               "return_dict",
                               "summary_activation",
                               "summary_first_dropout",
                               "summary_proj_to_labels",
                               "summary_type",
                               "summary_use_proj",
                               "task_specific_params",
                               "temperature",
                               "tokenizer_class",
                               "top_k",
                               "top_p",
                               "torch_dtype",
                               "transformers.js_config",
                               "transformers_version",
                               "unk_token_id",
                               "unsloth_fixed",
                               "unsloth_version",
                               "use_cache"};

/// Keys that change nothing with these values.
const std::vector<HuggingFaceLayout::Fixed>& neutral_keys() {
  static const std::vector<HuggingFaceLayout::Fixed> keys{
      {"attention_dropout", {0.0, std::int64_t{0}}},
      {"is_decoder", {true, false}},
      {"is_encoder_decoder", {false}},
      {"n_special", {std::int64_t{0}}},
      {"partial_rotary_factor", {1.0, std::int64_t{1}}},
      {"pretraining_tp", {std::int64_t{1}}},
      {"rope_interleaved", {false}},
      {"use_bidirectional_attention", {false}},
      {"use_mrope", {false}}};
  return keys;
}

}  // namespace

json::value json_of(const HuggingFaceLayout::Value& value) {
  return std::visit([](const auto& held) { return json::value(held); }, value);
}

const json::value* ConfigReader::find(const std::string& keys) {
  const std::size_t bar = keys.find('|'), dot = keys.substr(0, bar).find('.');
  const std::string first = keys.substr(0, std::min(bar, dot));
  know(first);
  const json::value* value = object_.if_contains(first);
  if (value != nullptr && dot != std::string::npos) {
    const json::object* inner = value->if_object();
    value = inner ? inner->if_contains(keys.substr(dot + 1, bar - dot - 1)) : nullptr;
  }
  if (bar == std::string::npos) return value;
  const json::value* other = find(keys.substr(bar + 1));
  return value != nullptr ? value : other;
}

const json::object* ConfigReader::find_object(const std::string& key) {
  const json::value* value = find(key);
  if (value == nullptr || value->is_null()) return nullptr;
  if (!value->is_object()) refuse(key, *value, "an object");
  return value->if_object();
}

void ConfigReader::expect(const HuggingFaceLayout::Fixed& key) {
  const json::value* value = find(key.key);
  if (value == nullptr) return;
  for (const auto& allowed : key.values) {
    if (*value == json_of(allowed)) return;
  }
  refuse(key.key, *value, json::serialize(json_of(key.values.front())));
}

void ConfigReader::expect_derived(const HuggingFaceLayout::Fixed& key) {
  const json::value* value = find(key.key);
  if (value == nullptr || value->is_null() || *value == json_of(key.values.front())) return;
  refuse(key.key, *value, "null or " + json::serialize(json_of(key.values.front())));
}

void ConfigReader::refuse_unknown() {
  for (const auto& [name, value] : object_) {
    const std::string key(name);
    if (value.is_null()) continue;
    if (path_.empty() && std::find(kHarmless.begin(), kHarmless.end(), key) != kHarmless.end())
      continue;
    const auto& neutral = neutral_keys();
    const auto found = std::find_if(neutral.begin(), neutral.end(),
                                    [&](const auto& known) { return known.key == key; });
    if (found == neutral.end() && !known_.count(key)) {
      problem(concat(path_, key, ": got ", json::serialize(value).substr(0, 60),
                     ", and this key is none of those that can be honoured"));
    } else if (found != neutral.end()) {
      expect(*found);
    }
  }
}

void ConfigReader::refuse(const std::string& key, const json::value& value,
                          const std::string& wanted) {
  problem(concat(path_, key, ": got ", json::serialize(value).substr(0, 60), ", want ", wanted));
}

bool ConfigReader::set(bool& to, const json::value& value) {
  return value.is_bool() && (to = value.get_bool(), true);
}
bool ConfigReader::set(double& to, const json::value& value) {
  return value.is_number() && (to = value.to_number<double>(), true);
}
bool ConfigReader::set(std::int64_t& to, const json::value& value) {
  return value.is_int64() && (to = value.get_int64()) >= 1;
}

}  // namespace hybrid_trainer
