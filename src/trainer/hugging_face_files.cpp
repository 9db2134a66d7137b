#include "src/trainer/hugging_face_files.h"

#include <boost/json.hpp>
#include <cmath>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/files/strict_json.h"
#include "hybrid_trainer/models/gpt2.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

/// Keys that change the computation, with the values that match this GPT-2; the first is what we
/// write, and an absent key is accepted.
struct FixedKey {
  const char* name;
  std::vector<json::value> allowed;
};

const std::vector<FixedKey>& fixed_keys() {
  static const std::vector<FixedKey> keys{
      {"activation_function", {"gelu_new", "gelu_pytorch_tanh"}},
      {"layer_norm_epsilon", {1e-5}},
      {"scale_attn_weights", {true}},
      {"scale_attn_by_inverse_layer_idx", {false}},
      {"reorder_and_upcast_attn", {false}},
      {"tie_word_embeddings", {true}},
      {"add_cross_attention", {false}},
  };
  return keys;
}

json::value end_of_text_id(std::optional<std::int32_t> id) {
  return id ? json::value(*id) : json::value();
}

/// A config.json, with all its problems collected.
class ConfigReader {
 public:
  ConfigReader(const json::object& object, std::string name)
      : object_(object), name_(std::move(name)) {}

  std::int64_t count(const char* key) {
    const json::value* value = object_.if_contains(key);
    if (value == nullptr) return problem(concat(key, " is missing")), 1;
    if (!value->is_int64() || value->get_int64() < 1)
      return problem(got(key, *value, "a whole number from 1 on")), 1;
    return value->get_int64();
  }
  void expect(const FixedKey& key) {
    const json::value* value = object_.if_contains(key.name);
    if (value == nullptr) return;
    for (const json::value& allowed : key.allowed) {
      if (*value == allowed) return;
    }
    problem(got(key.name, *value, json::serialize(key.allowed.front())));
  }
  void expect_text(const char* key, const char* wanted) {
    const json::value* value = object_.if_contains(key);
    if (value == nullptr) return problem(concat(key, " is missing, want \"", wanted, "\""));
    if (!value->is_string() || value->get_string() != wanted)
      problem(got(key, *value, json::serialize(json::value(wanted))));
  }
  /// n_inner: absent, null or 4·width.
  void expect_inner_width(std::int64_t width) {
    const json::value* value = object_.if_contains("n_inner");
    if (value == nullptr || value->is_null() || *value == json::value(4 * width)) return;
    problem(got("n_inner", *value, concat("null or 4 n_embd = ", 4 * width)));
  }
  void throw_problems() const {
    if (!problems_.empty())
      throw DataError(concat(name_, ": not a GPT-2 that can be read:", problems_));
  }

 private:
  static std::string got(const char* key, const json::value& value, const std::string& wanted) {
    return concat(key, ": got ", json::serialize(value).substr(0, 60), ", want ", wanted);
  }
  void problem(const std::string& text) { problems_ += "\n" + text; }
  const json::object& object_;
  std::string name_;
  std::string problems_;
};

}  // namespace

std::string hugging_face_config_text(const ModelConfig& model,
                                     std::optional<std::int32_t> end_of_text) {
  json::object config{{"architectures", json::array{"GPT2LMHeadModel"}},
                      {"model_type", "gpt2"},
                      {"vocab_size", model.vocabulary},
                      {"n_positions", model.context},
                      {"n_ctx", model.context},
                      {"n_embd", model.width},
                      {"n_layer", model.layers},
                      {"n_head", model.heads},
                      {"n_inner", nullptr},
                      {"embd_pdrop", model.dropout},
                      {"resid_pdrop", model.dropout},
                      {"attn_pdrop", 0.0},
                      {"initializer_range", 0.02},
                      {"bos_token_id", end_of_text_id(end_of_text)},
                      {"eos_token_id", end_of_text_id(end_of_text)},
                      {"torch_dtype", "float32"},
                      {"use_cache", true}};
  for (const FixedKey& key : fixed_keys()) config[key.name] = key.allowed.front();
  return pretty_json(config);
}

std::string hugging_face_generation_text(std::optional<std::int32_t> end_of_text) {
  return pretty_json(json::object{{"_from_model_config", true},
                                  {"bos_token_id", end_of_text_id(end_of_text)},
                                  {"eos_token_id", end_of_text_id(end_of_text)}});
}

std::string hugging_face_tokenizer_config_text(const ModelConfig& model,
                                               const std::string& end_of_text,
                                               bool add_prefix_space) {
  json::object config{
      {"add_prefix_space", add_prefix_space},
      {"clean_up_tokenization_spaces", false},
      {"model_max_length", model.context},
      {"tokenizer_class", end_of_text.empty() ? "PreTrainedTokenizerFast" : "GPT2Tokenizer"}};
  if (!end_of_text.empty()) {
    for (const char* role : {"bos_token", "eos_token", "unk_token"}) config[role] = end_of_text;
  }
  return pretty_json(config);
}

std::string hugging_face_special_tokens_text(const std::string& end_of_text) {
  json::object tokens;
  if (!end_of_text.empty()) {
    for (const char* role : {"bos_token", "eos_token", "unk_token"}) tokens[role] = end_of_text;
  }
  return pretty_json(tokens);
}

ModelConfig parse_hugging_face_config(const std::string& text, const std::string& name) {
  const json::value value = parse_json_text(text, name);
  if (!value.is_object()) throw DataError(concat(name, ": want a JSON object"));
  ConfigReader reader(value.get_object(), name);
  reader.expect_text("model_type", "gpt2");
  ModelConfig model;
  model.layers = reader.count("n_layer");
  model.heads = reader.count("n_head");
  model.width = reader.count("n_embd");
  model.context = reader.count("n_positions");
  model.vocabulary = reader.count("vocab_size");
  reader.expect_inner_width(model.width);
  for (const FixedKey& key : fixed_keys()) reader.expect(key);
  reader.throw_problems();

  std::vector<std::string> problems;
  collect_range_problems(model, "", problems);
  collect_model_problems(model, problems);
  if (!problems.empty()) throw DataError(concat(name, ": ", problems.front()));
  return model;
}

}  // namespace hybrid_trainer
