#include "src/hugging_face/hugging_face_files.h"

#include <boost/json.hpp>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/files/strict_json.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

using Fixed = HuggingFaceLayout::Fixed;

json::value json_of(const HuggingFaceLayout::Value& value) {
  return std::visit([](const auto& held) { return json::value(held); }, value);
}

json::value end_of_text_id(std::optional<std::int32_t> id) {
  return id ? json::value(*id) : json::value();
}

/// A config.json, with all its problems collected.
class ConfigReader {
 public:
  ConfigReader(const json::object& object, std::string name)
      : object_(object), name_(std::move(name)) {}

  std::int64_t count(const std::string& key) {
    const json::value* value = object_.if_contains(key);
    if (value == nullptr) return problem(concat(key, " is missing")), 1;
    if (!value->is_int64() || value->get_int64() < 1)
      return problem(got(key, *value, "a whole number from 1 on")), 1;
    return value->get_int64();
  }
  void expect(const Fixed& key) {
    const json::value* value = object_.if_contains(key.key);
    if (value == nullptr) return;
    for (const auto& allowed : key.values) {
      if (*value == json_of(allowed)) return;
    }
    problem(got(key.key, *value, json::serialize(json_of(key.values.front()))));
  }
  /// Absent, null, or the value that follows from the sizes.
  void expect_derived(const Fixed& key) {
    const json::value* value = object_.if_contains(key.key);
    if (value == nullptr || value->is_null() || *value == json_of(key.values.front())) return;
    problem(got(key.key, *value, "null or " + json::serialize(json_of(key.values.front()))));
  }
  void throw_problems(const std::string& title) const {
    if (!problems_.empty())
      throw DataError(concat(name_, ": not a ", title, " that can be read:", problems_));
  }

 private:
  static std::string got(const std::string& key, const json::value& value,
                         const std::string& wanted) {
    return concat(key, ": got ", json::serialize(value).substr(0, 60), ", want ", wanted);
  }
  void problem(const std::string& text) { problems_ += "\n" + text; }
  const json::object& object_;
  std::string name_;
  std::string problems_;
};

}  // namespace

std::string hugging_face_config_text(const ModelConfig& model, const HuggingFaceLayout& layout,
                                     std::optional<std::int32_t> end_of_text) {
  json::object config{{"architectures", json::array{layout.architecture}},
                      {"model_type", layout.model_type}};
  for (const auto& size : layout.sizes) config[size.key] = model.*size.member;
  for (const Fixed& key : layout.derived(model)) config[key.key] = nullptr;
  for (const Fixed& key : layout.written(model)) config[key.key] = json_of(key.values.front());
  config["bos_token_id"] = end_of_text_id(end_of_text);
  config["eos_token_id"] = end_of_text_id(end_of_text);
  config["torch_dtype"] = "float32";
  config["use_cache"] = true;
  for (const Fixed& key : layout.fixed) config[key.key] = json_of(key.values.front());
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

namespace {

const ModelFamily& family_of(const json::object& config, const std::string& name,
                             const ModelRegistry& registry) {
  const json::value* type = config.if_contains("model_type");
  std::string known;
  for (const ModelFamily& family : registry) {
    const json::value wanted(family.hugging_face.model_type);
    if (type != nullptr && *type == wanted) return family;
    known += (known.empty() ? "" : " or ") + json::serialize(wanted);
  }
  const std::string got = type == nullptr
                              ? "model_type is missing"
                              : "model_type: got " + json::serialize(*type).substr(0, 60);
  throw DataError(concat(name, ": not a model that can be read: ", got, ", want ", known));
}

}  // namespace

ModelConfig parse_hugging_face_config(const std::string& text, const std::string& name,
                                      const ModelRegistry& registry) {
  const json::value value = parse_json_text(text, name);
  if (!value.is_object()) throw DataError(concat(name, ": want a JSON object"));
  const ModelFamily& family = family_of(value.get_object(), name, registry);
  const HuggingFaceLayout& layout = family.hugging_face;
  ConfigReader reader(value.get_object(), name);
  ModelConfig model;
  model.family = family.name;
  for (const auto& size : layout.sizes) model.*size.member = reader.count(size.key);
  for (const Fixed& key : layout.derived(model)) reader.expect_derived(key);
  for (const Fixed& key : layout.fixed) reader.expect(key);
  reader.throw_problems(family.title);

  std::vector<std::string> problems;
  collect_range_problems(model, "", problems);
  collect_model_problems(model, problems, registry);
  if (!problems.empty()) throw DataError(concat(name, ": ", problems.front()));
  return model;
}

}  // namespace hybrid_trainer
