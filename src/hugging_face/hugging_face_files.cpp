#include "src/hugging_face/hugging_face_files.h"

#include <boost/json.hpp>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/files/strict_json.h"
#include "src/hugging_face/config_reader.h"
#include "src/hugging_face/quantization_config.h"
#include "src/hugging_face/rotary_keys.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

using Fixed = HuggingFaceLayout::Fixed;

/// A number without decimals as an integer, which is what transformers takes for one.
HuggingFaceLayout::Value whole(double value) {
  const auto rounded = static_cast<std::int64_t>(value);
  if (static_cast<double>(rounded) == value) return rounded;
  return value;
}
HuggingFaceLayout::Value whole(std::int64_t value) { return value; }
HuggingFaceLayout::Value whole(bool value) { return value; }

/// Adds bos_token_id and eos_token_id, and what else `token_ids` has in their place.
void add_token_ids(json::object& config, std::optional<std::int32_t> end_of_text,
                   const std::string& token_ids) {
  const json::value end = end_of_text ? json::value(*end_of_text) : json::value();
  const json::value both = json::object{{"bos_token_id", end}, {"eos_token_id", end}};
  const json::value ids = token_ids.empty() ? both : parse_json_text(token_ids, "token ids");
  for (const auto& [key, value] : ids.get_object()) config[key] = value;
}

}  // namespace

std::string hugging_face_config_text(const ModelConfig& model, const HuggingFaceLayout& layout,
                                     std::optional<std::int32_t> end_of_text, DType dtype,
                                     const std::string& quantization,
                                     const std::string& token_ids) {
  json::object config{{"architectures", json::array{layout.architecture}},
                      {"model_type", layout.model_type}};
  for (const auto& member : layout.members) {
    const std::string key = member.key.substr(0, member.key.find('|'));
    const auto write = [&](auto pointer) {
      const auto value = model.*pointer;
      if (!member.null_is_zero) {
        config[key] = json_of(whole(value));
      } else {
        config[key] = value == 0 ? json::value() : json::value(value);
      }
    };
    std::visit(write, member.member);
  }
  if (layout.rope_theta) write_rotary_keys(config, model, layout);
  for (const Fixed& key : layout.derived(model)) config[key.key] = nullptr;
  for (const Fixed& key : layout.written(model)) config[key.key] = json_of(key.values.front());
  add_token_ids(config, end_of_text, token_ids);
  config["torch_dtype"] = dtype == DType::kBF16 ? "bfloat16" : "float32";
  config["use_cache"] = true;
  for (const Fixed& key : layout.fixed) config[key.key] = json_of(key.values.front());
  if (!quantization.empty()) config["quantization_config"] = quantization_config(quantization);
  return typed_pretty_json(config);
}

std::string hugging_face_generation_text(std::optional<std::int32_t> end_of_text,
                                         const std::string& token_ids) {
  json::object config{{"_from_model_config", true}};
  add_token_ids(config, end_of_text, token_ids);
  return pretty_json(config);
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
  parse_quantization_config(value.get_object(), name);
  ConfigReader reader(value.get_object());
  reader.know("quantization_config");
  ModelConfig model;
  model.family = family.name;
  for (const auto& member : layout.members) {
    const auto read = [&](auto pointer) {
      if (!member.null_is_zero) return reader.read(model.*pointer, member.key, member.missing);
      reader.read_nullable(model.*pointer, member.key, member.missing.value_or(0));
    };
    std::visit(read, member.member);
  }
  for (const Fixed& key : layout.derived(model)) reader.expect_derived(key);
  if (layout.rope_theta) read_rotary_keys(reader, model, layout);
  for (const Fixed& key : layout.fixed) reader.expect(key);
  for (const Fixed& key : layout.written(model)) reader.know(key.key);
  reader.sort_unread();
  if (!reader.problems().empty())
    throw DataError(
        concat(name, ": not a ", family.title, " that can be read:", reader.problems()));
  warn_of_unknown_keys(name, reader.unknown());

  std::vector<std::string> problems;
  collect_range_problems(model, "", problems);
  collect_model_problems(model, problems, registry);
  if (!problems.empty()) throw DataError(concat(name, ": ", problems.front()));
  return resolved_model_config(model, registry);
}

}  // namespace hybrid_trainer
