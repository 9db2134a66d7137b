#include "src/model_files/hugging_face/config_files.h"

#include <algorithm>

#include "src/files/text.h"
#include "src/model_files/hugging_face/quantized_tensors.h"
#include "src/models/hugging_face/labels.h"

namespace hybrid_trainer {

namespace {

constexpr const char *kClassifier = "ForSequenceClassification",
                     *kPooling = "classifier_pooling";  // ModernBERT's

/// Returns the pooling of a class head. `given`: value of kPooling in config.json, or null.
std::string class_pooling(const json::value* given, bool bidirectional) {
  const bool takes_mean = given != nullptr && *given == json::value("mean");
  return takes_mean ? "mean" : bidirectional ? "cls" : "last";
}

const json::value* member_of(const json::value* value, const char* key) {
  const json::object* const object = value == nullptr ? nullptr : value->if_object();
  return object == nullptr ? nullptr : object->if_contains(key);
}

const ModelFamily& family_of(const json::object& config, const std::string& name,
                             const ModelRegistry& registry) {
  const json::value* type = config.if_contains("model_type");
  const json::value* const inner = member_of(config.if_contains("text_config"), "model_type");
  const auto is = [](const json::value* value, const std::string& wanted) {
    return value != nullptr && !wanted.empty() && *value == json::value(wanted);
  };
  std::set<std::string> known;
  const ModelFamily* outer = nullptr;  // the first one, or the one of text_config
  for (const ModelFamily& family : registry) {
    const HuggingFaceLayout& layout = family.hugging_face;
    if (is(type, layout.model_type)) return family;
    if (is(type, layout.outer.model_type) && (outer == nullptr || is(inner, layout.model_type)))
      outer = &family;
    for (const std::string& wanted : {layout.model_type, layout.outer.model_type})
      if (!wanted.empty()) known.insert(concat("\"", wanted, "\""));
  }
  if (outer != nullptr) return *outer;
  const std::string got = type == nullptr ? "model_type is missing"
                                          : "model_type: got " + json_line(*type).substr(0, 60);
  throw DataError(concat(name, ": unsupported model: ", got, ", want ",
                         join(std::vector(known.begin(), known.end()), " or ")));
}

/// Returns a class name of transformers without its task: "Llama" for "LlamaForCausalLM".
std::string model_of_class(std::string_view name) {
  for (const std::string_view end : {"LMHeadModel", "Model"})
    if (name.ends_with(end)) return std::string(name.substr(0, name.size() - end.size()));
  return std::string(name.substr(0, name.rfind("For")));
}

/// Refuses classes of another family: some programs follow `architectures`, some `model_type`.
void check_architectures(ConfigReader& reader, const ModelFamily& family,
                         const ModelRegistry& registry) {
  const json::value* const found = reader.find("architectures");
  const json::array* const names = found == nullptr ? nullptr : found->if_array();
  if (names == nullptr) return;
  const std::string own = model_of_class(family.hugging_face.architecture);
  for (const json::value& name : *names) {
    const std::string model = name.is_string() ? model_of_class(name.get_string()) : own;
    const bool is_other = model != own && std::ranges::any_of(registry, [&](const auto& other) {
                            return model == model_of_class(other.hugging_face.architecture);
                          });
    if (is_other)
      reader.refuse("architectures", *found,
                    concat("[\"", family.hugging_face.architecture, "\"], which fits model_type"));
  }
}

/// Reads the class head of a model "…ForSequenceClassification".
void read_class_head(ConfigReader& reader, ModelConfig& model) {
  const json::value* architectures = reader.find("architectures");
  if (architectures == nullptr || json_line(*architectures).find(kClassifier) == std::string::npos)
    return;
  model.labels = read_labels(reader);
  model.pooling = class_pooling(reader.find(kPooling), model.bidirectional);
  if (const json::value* type = reader.find("problem_type"); type != nullptr && type->is_string())
    model.problem_type = type->get_string();
}

void read_keys(ConfigReader& reader, ModelConfig& model, const HuggingFaceLayout& layout) {
  reader.know("quantization_config");
  ConfigKeys keys(reader);
  layout.keys(keys, model);
  read_class_head(reader, model);
  if (keys.fit(model)) reader.sort_unread();
}

/// Reads the keys outside the text model, for images and a tied head.
void read_outer_keys(ConfigReader& reader, ModelConfig& model, const json::object& text_config,
                     const HuggingFaceLayout& layout) {
  ConfigReader inner(text_config, "text_config.");
  inner.expect("model_type", {layout.model_type});
  read_keys(inner, model, layout);
  reader.add(inner);
  for (const char* key : {"quantization_config", "vision_config"}) reader.know(key);
  for (const std::string& key : layout.outer.inert) reader.know(key);
  const bool is_tied = model.tied_head || layout.outer.file_tied_head;
  reader.read(model.tied_head, "tie_word_embeddings", is_tied ? 1 : 0);
  reader.sort_unread();
}

/// Returns whether two values are equal; 1 equals 1.0.
bool is_same(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

/// Returns whether the key describes the exported file instead of its base.
bool is_export_key(const std::string& key) {
  return key == "architectures" || key == "model_type" || key == "torch_dtype" ||
         key == "quantization_config" || key.ends_with("_token_id");
}

}  // namespace

json::object hugging_face_config(const ModelConfig& model, const HuggingFaceLayout& layout,
                                 std::optional<std::int32_t> end_of_text, DType dtype,
                                 const std::string& quantization, const std::string& token_ids) {
  json::object config{{"architectures", json::array{layout.architecture}},
                      {"model_type", layout.model_type}};
  ConfigKeys keys(config);
  ModelConfig sizes = model;
  layout.keys(keys, sizes);
  const bool reads_tokens = layout.classifier.empty();
  if (reads_tokens) add_token_ids(config, end_of_text, token_ids);
  if (reads_tokens && !model.labels.empty()) {
    write_labels(config, model.labels);
    if (!model.problem_type.empty()) config["problem_type"] = model.problem_type;
    // transformers pools the last token before the padding, so it needs to know the padding.
    if (const json::value* end = config.if_contains("eos_token_id");
        end != nullptr && end->is_number() && !config.contains("pad_token_id"))
      config["pad_token_id"] = *end;
  }
  config["torch_dtype"] = dtype == DType::kBF16 ? "bfloat16" : "float32";
  if (reads_tokens) config["use_cache"] = true;
  for (const auto& [key, value] : keys.last()) config[key] = json_of(value);
  if (!quantization.empty()) config["quantization_config"] = quantization_config(quantization);
  return config;
}

void add_token_ids(json::object& config, std::optional<std::int32_t> end_of_text,
                   const std::string& token_ids) {
  const json::value end = end_of_text ? json::value(*end_of_text) : json::value();
  const json::value both = json::object{{"bos_token_id", end}, {"eos_token_id", end}};
  const json::value ids = token_ids.empty() ? both : parse_json_text(token_ids, "token ids");
  if (!ids.is_object()) throw DataError("token ids: want a JSON object");
  for (const auto& [key, value] : ids.get_object()) config[key] = value;
}

json::object parse_python_object(const std::string& text, const std::string& name) {
  json::value value = parse_json_text(with_named_floats(text), name);
  if (!value.is_object()) throw DataError(concat(name, ": want a JSON object"));
  return std::move(value.get_object());
}

json::object read_python_object(const FolderFiles& folder, const std::string& name) {
  return parse_python_object(folder.text(name, JsonLimits{}.max_bytes),
                             (folder.path() / name).string());
}

json::object python_object_in(const FolderFiles& folder, const std::string& name) {
  if (!folder.contains(name)) return {};
  json::object object = read_python_object(folder, name);
  const json::value* inner = object.if_contains("text_config");
  if (inner == nullptr || !inner->is_object()) return object;
  const json::object of_texts = inner->get_object();
  for (const auto& [key, value] : of_texts)
    if (!object.contains(key)) object[key] = value;
  return object;
}

std::string class_pooling(const FolderFiles& folder, const ModelConfig& model) {
  const json::object config = python_object_in(folder, "config.json");
  return class_pooling(config.if_contains(kPooling), model.bidirectional);
}

std::string exported_class_pooling(ModelConfig model, const ModelRegistry& registry) {
  model.language_head = false;
  if (model.labels.empty()) model.labels = {{"LABEL_0"}};
  const json::object config = hugging_face_config(resolved_model_config(model, registry),
                                                  layout_of(model, registry), {}, DType::kF32);
  return class_pooling(config.if_contains(kPooling), model.bidirectional);
}

ReadConfig read_hugging_face_config(const json::object& config, const std::string& name,
                                    const ModelRegistry& registry) {
  const ModelFamily& family = family_of(config, name, registry);
  const HuggingFaceLayout& layout = family.hugging_face;
  parse_quantization_config(config, name);
  ConfigReader reader(config);
  ModelConfig model;
  model.family = family.name;
  const bool is_outer = config.at("model_type") == json::value(layout.outer.model_type);
  check_architectures(reader, family, registry);
  if (!is_outer) {
    read_keys(reader, model, layout);
  } else if (reader.find("text_config") == nullptr) {
    reader.problem("text_config: is missing; only models with a text model are supported");
  } else if (const json::object* text_config = reader.find_object("text_config")) {
    read_outer_keys(reader, model, *text_config, layout);
  }
  if (!reader.problems().empty())
    throw DataError(concat(name, ": unsupported ", family.title, " model:", reader.problems()));
  std::vector<std::string> problems;
  collect_range_problems(model, "", problems);
  collect_model_problems(model, problems, registry);
  if (!problems.empty()) throw DataError(concat(name, ": ", problems.front()));
  return {resolved_model_config(model, registry), reader.known(), reader.unknown()};
}

json::object config_over_base(json::object ours, const json::object& base, const std::string& name,
                              const std::function<json::object(const ModelConfig&)>& written,
                              const ModelRegistry& registry) {
  const ReadConfig theirs = read_hugging_face_config(base, name, registry);
  const json::value* const type = base.if_contains("model_type");
  const bool is_same_type = type != nullptr && *type == ours.at("model_type");
  const json::object before = is_same_type ? written(theirs.model) : json::object();
  const auto is_unchanged = [&](const std::string& key, const json::value& value) {
    const json::value* was = before.if_contains(key);
    return was != nullptr && is_same(*was, value);
  };
  bool is_changed = false;
  for (const auto& [key, value] : ours)
    is_changed = is_changed || (!is_export_key(key) && !is_unchanged(key, value));
  json::object result = is_changed ? ours : base;
  for (const auto& [key, value] : is_changed ? base : ours) {
    const bool is_own = is_export_key(key);
    const bool is_kept = ours.contains(key) ? is_unchanged(key, ours.at(key)) && !is_own
                                            : !theirs.known.contains(key) && !is_own;
    if (is_changed ? is_kept : is_own) result[key] = value;
  }
  if (!ours.contains("quantization_config")) result.erase("quantization_config");
  result.erase("auto_map");      // refers to code that the folder does not contain
  if (base.contains("dtype")) {  // transformers 5's name
    result["dtype"] = ours.at("torch_dtype");
    if (!base.contains("torch_dtype")) result.erase("torch_dtype");
  }
  return result;
}

}  // namespace hybrid_trainer
