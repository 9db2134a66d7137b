#include "src/model_files/hugging_face/sentence_folder.h"

#include <algorithm>
#include <array>

#include "src/data/text/tokenizer_files.h"
#include "src/files/foreign_files.h"
#include "src/files/output_file.h"
#include "src/model_files/hugging_face/config_files.h"
#include "src/models/hugging_face/config_reader.h"

namespace hybrid_trainer {

namespace {

constexpr const char *kModuleList = "modules.json",
                     *kSettings = "config_sentence_transformers.json";
constexpr const char* kPoolingFolder = "1_Pooling";

struct NamePair {
  const char *ours, *theirs;
};
constexpr std::array kPoolings{NamePair{"cls", "cls"}, NamePair{"mean", "mean"},
                               NamePair{"last", "lasttoken"}};
constexpr std::array kActivations{NamePair{"identity", "torch.nn.modules.linear.Identity"},
                                  NamePair{"tanh", "torch.nn.modules.activation.Tanh"},
                                  NamePair{"gelu", "torch.nn.modules.activation.GELU"}};
/// Activations of a CrossEncoder with one output.
constexpr std::array kScores{NamePair{"sigmoid", "torch.nn.modules.activation.Sigmoid"},
                             NamePair{"identity", "torch.nn.modules.linear.Identity"}};
/// Key of a CrossEncoder in config.json, and its predecessor.
constexpr const char *kCrossEncoder = "sentence_transformers",
                     *kOldActivation = "sbert_ce_default_activation_function";
/// Pooling modes and their keys before version 6, in which each is a flag.
constexpr std::array kPoolingFlags{NamePair{"cls", "pooling_mode_cls_token"},
                                   NamePair{"max", "pooling_mode_max_tokens"},
                                   NamePair{"mean", "pooling_mode_mean_tokens"},
                                   NamePair{"mean_sqrt_len", "pooling_mode_mean_sqrt_len_tokens"},
                                   NamePair{"weightedmean", "pooling_mode_weightedmean_tokens"},
                                   NamePair{"lasttoken", "pooling_mode_lasttoken"}};

struct ModuleEntry {
  std::string kind;  // "Pooling"
  std::string path;  // path of its folder
  std::string file(const std::string& name) const {
    return path.empty() ? name : path + "/" + name;
  }
};

std::string path_in(const FolderFiles& files, const std::string& name) {
  return (files.path() / name).string();
}

/// Returns the last part of "a.b.Name".
std::string name_of_type(const std::string& name) { return name.substr(name.rfind('.') + 1); }

std::string text_of(ConfigReader& reader, const std::string& key, const std::string& missing) {
  const json::value* value = reader.find(key);
  if (value == nullptr) return missing;
  if (!value->is_string()) reader.refuse(key, *value, "a string");
  return value->is_string() ? std::string(value->get_string()) : missing;
}

/// Reads a file with `read`. Throws DataError naming the file and all problems.
void read_keys(const FolderFiles& files, const std::string& name,
               const std::function<void(ConfigReader&)>& read) {
  const json::object object = python_object_in(files, name);
  ConfigReader reader(object);
  read(reader);
  if (!reader.problems().empty())
    throw DataError(concat(path_in(files, name), ": unsupported:", reader.problems()));
  std::vector<std::string> unknown;
  for (const auto& [key, value] : object)
    if (!reader.known().contains(key)) unknown.emplace_back(key);
  warn_of_unknown_keys(path_in(files, name), unknown);
}

std::vector<ModuleEntry> modules_in(const FolderFiles& files) {
  const json::value root = files.json(kModuleList);
  const auto refuse = [&](const std::string& problem) {
    throw DataError(concat(path_in(files, kModuleList), ": ", problem));
  };
  if (!root.is_array()) refuse("want a list of modules");
  std::vector<ModuleEntry> modules;
  for (const json::value& item : root.get_array()) {
    const auto text = [&](const char* key) -> std::string {
      const json::value* value = item.is_object() ? item.get_object().if_contains(key) : nullptr;
      if (value == nullptr || !value->is_string())
        refuse(concat("module ", modules.size(), " has no \"", key, "\""));
      return std::string(value->get_string());
    };
    const std::string type = text("type"), path = text("path");
    if (!type.starts_with("sentence_transformers."))
      refuse(concat("module ", modules.size(), ": type: got \"", type.substr(0, 100),
                    "\", which is code outside sentence-transformers"));
    if (path == "." || path == ".." || path.find_first_of("/\\") != path.npos)
      refuse(concat("module ", modules.size(), ": path: got \"", path.substr(0, 100),
                    "\", want the name of a folder in this one"));
    modules.push_back({name_of_type(type), path});
  }
  return modules;
}

void read_pooling(ConfigReader& reader, SentencePipeline& pipeline) {
  reader.read(pipeline.width, "embedding_dimension|word_embedding_dimension", {});
  std::vector<std::string> modes;
  const json::value* const given = reader.find("pooling_mode");
  if (given != nullptr) {
    const json::array one{*given};
    for (const json::value& mode : given->is_array() ? given->get_array() : one)
      modes.push_back(mode.is_string() ? std::string(mode.get_string()) : json_line(mode));
  }
  for (const auto& [mode, key] : kPoolingFlags) {
    bool is_on = false;
    reader.read(is_on, key, 0.0);
    if (is_on && given == nullptr) modes.emplace_back(mode);
  }
  if (modes.empty()) modes = {"mean"};  // as sentence-transformers does
  const auto known = std::ranges::find(kPoolings, modes.front(), &NamePair::theirs);
  if (modes.size() > 1 || known == kPoolings.end())
    reader.problem(
        concat("pooling: got ", join(modes, " and "), ", want cls, mean or lasttoken alone"));
  else
    pipeline.pooling = known->ours;
  reader.expect("include_prompt", {true});
}

void read_dense(ConfigReader& reader, std::int64_t inputs, DenseLayer& dense) {
  reader.expect("in_features", {inputs});
  reader.read(dense.outputs, "out_features", {});
  reader.read(dense.has_bias, "bias", 1);
  const std::string name = text_of(reader, "activation_function", kActivations[1].theirs);
  const auto known = std::ranges::find_if(kActivations, [&](const NamePair& one) {
    return name.starts_with("torch.") && name_of_type(name) == name_of_type(one.theirs);
  });
  if (known == kActivations.end())
    reader.refuse("activation_function", json::value(name), "torch's Identity, Tanh or GELU");
  else
    dense.activation = known->ours;
  for (const char* key : {"module_input_name", "module_output_name"})
    reader.expect(key, {std::string("sentence_embedding")});
  reader.expect("use_residual", {false});
}

void read_transformer(ConfigReader& reader, SentencePipeline& pipeline) {
  if (reader.find("max_seq_length") != nullptr)
    reader.read(pipeline.max_length, "max_seq_length", {});
  reader.read(pipeline.lowers_case, "do_lower_case", 0.0);
  reader.expect("transformer_task", {std::string("feature-extraction")});
  reader.expect("module_output_name", {std::string("token_embeddings")});
  reader.know("unpad_inputs");  // the same result in less time
  for (const char* key :
       {"processing_kwargs", "query_length", "document_length", "query_expansion"})
    if (const json::value* value = reader.find(key)) reader.refuse(key, *value, "no such key");
  const json::object* const inputs = reader.find_object("modality_config");
  if (inputs == nullptr) return;
  const json::object wanted{{"method", "forward"}, {"method_output_name", "last_hidden_state"}};
  const json::value* const texts = inputs->if_contains("text");
  if (texts == nullptr || *texts != json::value(wanted))
    reader.refuse("modality_config.text", texts == nullptr ? json::value() : *texts,
                  json_line(wanted));
  if (const json::value* messages = inputs->if_contains("message"))  // a chat template for texts
    reader.refuse("modality_config.message", *messages, "no such key");
}

/// Returns the maximum tokens of a text according to a tokenizer_config.json; 0 if it has none.
std::int64_t tokenizer_limit(const FolderFiles& files, const std::string& name) {
  const json::object tokenizer = python_object_in(files, name);
  const json::value* const longest = tokenizer.if_contains("model_max_length");  // 1e30: none
  const bool is_limit =
      longest != nullptr && longest->is_int64() && longest->get_int64() <= INT32_MAX;
  return is_limit ? std::max<std::int64_t>(0, longest->get_int64()) : 0;
}

/// Reads the first of the files that versions of sentence-transformers have used.
void read_transformer_file(const FolderFiles& files, const ModuleEntry& module,
                           SentencePipeline& pipeline) {
  for (const char* file : kSentenceFiles) {
    const std::string name = module.file(file);
    if (!files.contains(name)) continue;
    read_keys(files, name, [&](ConfigReader& reader) { read_transformer(reader, pipeline); });
    break;
  }
  if (pipeline.max_length == 0)
    pipeline.max_length = tokenizer_limit(files, module.file("tokenizer_config.json"));
}

void read_settings(ConfigReader& reader, SentencePipeline& pipeline) {
  reader.know("__version__");
  reader.expect("model_type", {std::string("SentenceTransformer")});
  reader.expect("similarity_fn_name", {std::string("cosine"), std::string("dot"),
                                       std::string("euclidean"), std::string("manhattan")});
  pipeline.similarity = text_of(reader, "similarity_fn_name", "cosine");
  if (reader.find("truncate_dim") != nullptr) reader.read(pipeline.dimensions, "truncate_dim", {});
  if (const json::object* prompts = reader.find_object("prompts"))
    for (const auto& [name, text] : *prompts) {
      if (text.is_string()) pipeline.prompts[name] = std::string(text.get_string());
      if (!text.is_string() && !text.is_null())
        reader.refuse(concat("prompts.", std::string_view(name)), text, "a string");
    }
  pipeline.default_prompt = text_of(reader, "default_prompt_name", "");
  if (!pipeline.default_prompt.empty() && !pipeline.prompts.contains(pipeline.default_prompt))
    reader.refuse("default_prompt_name", json::value(pipeline.default_prompt), "a name in prompts");
}

/// Throws DataError unless the modules are a transformer, pooling, any number of linear layers, and
/// then at most normalization, and the layers are in the folders 2_Dense, 3_Dense and so on.
void check_order(const std::vector<ModuleEntry>& modules, const std::string& path) {
  std::vector<std::string> kinds;
  for (const ModuleEntry& module : modules) kinds.push_back(module.kind);
  std::vector<std::string> wanted{"Transformer", "Pooling"};
  while (wanted.size() < kinds.size() && kinds[wanted.size()] == "Dense") {
    const ModuleEntry& dense = modules[wanted.size()];
    if (const std::string folder = concat(wanted.size(), "_Dense"); dense.path != folder)
      throw DataError(concat(path, ": module ", wanted.size(), ": path: got \"",
                             dense.path.substr(0, 100), "\", want ", folder));
    wanted.emplace_back("Dense");
  }
  if (kinds.size() > wanted.size()) wanted.emplace_back("Normalize");
  if (kinds == wanted) return;
  throw DataError(
      concat(path, ": got the modules ", join(kinds).substr(0, 300),
             "; want Transformer, Pooling, any number of Dense, then at most one Normalize"));
}

void write_json(const fs::path& file, const json::value& value) {
  make_folders(file.parent_path());
  replace_file(file, pretty_json(value));
}

json::object module_entry(std::size_t index, const char* kind, const std::string& path) {
  return {{"idx", index},
          {"name", std::to_string(index)},
          {"path", path},
          {"type", concat("sentence_transformers.models.", kind)}};
}

template <class Names>
const char* their_name(const Names& names, const std::string& ours) {
  const auto found = std::ranges::find(names, ours, &NamePair::ours);
  if (found == names.end()) throw DataError(concat("sentence pipeline: unknown name ", ours));
  return found->theirs;
}

}  // namespace

bool has_sentence_pipeline(const ModelFolder& folder) {
  if (!folder.files().contains(kModuleList)) return false;
  const json::object settings = python_object_in(folder.files(), kSettings);
  const json::value* const type = settings.if_contains("model_type");
  return type == nullptr || *type != "CrossEncoder";
}

SentencePipeline read_sentence_pipeline(const ModelFolder& folder) {
  const FolderFiles& files = folder.files();
  SentencePipeline pipeline;
  read_keys(files, kSettings, [&](ConfigReader& reader) { read_settings(reader, pipeline); });
  const std::vector<ModuleEntry> modules = modules_in(files);
  check_order(modules, path_in(files, kModuleList));
  for (const ModuleEntry& module : modules) {
    const std::string config = module.file("config.json");
    if (module.kind == "Transformer") {
      pipeline.transformer = module.path;
      read_transformer_file(files, module, pipeline);
    } else if (module.kind == "Normalize") {
      pipeline.normalizes = true;
      read_keys(files, config, [](ConfigReader& reader) {
        for (const char* key : {"module_input_name", "module_output_name"})
          reader.expect(key, {std::string("sentence_embedding")});
      });
    } else if (!files.contains(config)) {
      throw MissingInput(concat(path_in(files, config), ": does not exist, but ", kModuleList,
                                " lists it; copy the whole folder"));
    } else if (module.kind == "Pooling") {
      read_keys(files, config, [&](ConfigReader& reader) { read_pooling(reader, pipeline); });
    } else {
      const std::int64_t inputs =
          pipeline.dense.empty() ? pipeline.width : pipeline.dense.back().outputs;
      DenseLayer& dense = pipeline.dense.emplace_back();
      read_keys(files, config, [&](ConfigReader& reader) { read_dense(reader, inputs, dense); });
    }
  }
  return pipeline;
}

std::int64_t max_class_text(const ModelFolder& folder) {
  return folder.is_gguf() ? 0 : tokenizer_limit(folder.files(), "tokenizer_config.json");
}

std::string cross_encoder_activation(const ModelFolder& folder) {
  if (folder.is_gguf()) return "";
  const FolderFiles& files = folder.files();
  const json::object settings = python_object_in(files, kSettings),
                     config = python_object_in(files, "config.json");
  const json::value* const type = settings.if_contains("model_type");
  const bool is_module = type != nullptr && *type == "CrossEncoder";
  const json::value* const own = config.if_contains(kCrossEncoder);
  const json::value* named = is_module ? settings.if_contains("activation_fn")
                             : own != nullptr && own->is_object()
                                 ? own->get_object().if_contains("activation_fn")
                                 : config.if_contains(kOldActivation);
  if (!is_module && named == nullptr) return "";
  const json::value* const prompt = settings.if_contains("default_prompt_name");
  if (is_module && prompt != nullptr && prompt->is_string())
    throw DataError(concat(path_in(files, kSettings), ": default_prompt_name: got ",
                           json_line(*prompt).substr(0, 100), ", want null: prompts of a ",
                           "CrossEncoder are not supported"));
  if (is_module && files.contains(kModuleList)) {
    const std::vector<ModuleEntry> modules = modules_in(files);
    if (modules.size() != 1 || modules[0].kind != "Transformer" || !modules[0].path.empty())
      throw DataError(concat(path_in(files, kModuleList), ": got ", modules.size(),
                             " modules of a CrossEncoder; want a Transformer in this folder"));
  }
  if (named == nullptr || named->is_null()) return kScores[0].ours;
  const std::string name =
      named->is_string() ? std::string(named->get_string()) : json_line(*named);
  for (const NamePair& one : kScores)
    if (name.starts_with("torch.") && name_of_type(name) == name_of_type(one.theirs))
      return one.ours;
  throw DataError(concat(path_in(files, is_module ? kSettings : "config.json"),
                         ": the activation_fn of its scores is ", name.substr(0, 100),
                         ", which is not supported; want torch's Sigmoid or Identity"));
}

void write_cross_encoder(const std::string& activation, const fs::path& folder) {
  const fs::path file = folder / "config.json";
  const json::object before = read_json(file).as_object();
  json::object config = before;
  config.erase(kCrossEncoder);
  config.erase(kOldActivation);
  if (!activation.empty())
    config[kCrossEncoder] =
        json::object{{"version", "4.0.0"}, {"activation_fn", their_name(kScores, activation)}};
  if (config != before) replace_file(file, typed_pretty_json(config));
}

void write_cross_encoder_adapter(const std::string& activation, const fs::path& folder) {
  write_json(folder / kSentenceFiles[0],
             json::object{{"transformer_task", "sequence-classification"}});
  write_json(folder / kModuleList, json::array{module_entry(0, "Transformer", "")});
  write_json(folder / kSettings, json::object{{"model_type", "CrossEncoder"},
                                              {"activation_fn", their_name(kScores, activation)},
                                              {"prompts", json::object{}},
                                              {"default_prompt_name", nullptr}});
}

void write_sentence_pipeline(const SentencePipeline& pipeline, const fs::path& folder) {
  json::array modules{module_entry(0, "Transformer", ""),
                      module_entry(1, "Pooling", kPoolingFolder)};
  write_json(
      folder / "sentence_bert_config.json",
      json::object{{"max_seq_length",
                    pipeline.max_length > 0 ? json::value(pipeline.max_length) : json::value()},
                   {"do_lower_case", pipeline.lowers_case}});
  json::object pooling{{"word_embedding_dimension", pipeline.width}};
  const std::string mode = their_name(kPoolings, pipeline.pooling);
  for (const auto& [name, key] : kPoolingFlags) pooling[key] = mode == name;
  pooling["include_prompt"] = true;
  write_json(folder / kPoolingFolder / "config.json", pooling);
  std::int64_t inputs = pipeline.width;
  for (const DenseLayer& dense : pipeline.dense) {
    const std::string path = concat(modules.size(), "_Dense");
    modules.push_back(module_entry(modules.size(), "Dense", path));
    write_json(folder / path / "config.json",
               json::object{{"in_features", inputs},
                            {"out_features", dense.outputs},
                            {"bias", dense.has_bias},
                            {"activation_function", their_name(kActivations, dense.activation)}});
    inputs = dense.outputs;
  }
  if (pipeline.normalizes) {
    const std::string path = concat(modules.size(), "_Normalize");
    modules.push_back(module_entry(modules.size(), "Normalize", path));
    make_folders(folder / path);
  }
  write_json(folder / kModuleList, modules);
  json::object settings{{"model_type", "SentenceTransformer"},
                        {"prompts", json::value_from(pipeline.prompts)},
                        {"default_prompt_name", json_or_null(pipeline.default_prompt)},
                        {"similarity_fn_name", pipeline.similarity}};
  if (pipeline.dimensions > 0) settings["truncate_dim"] = pipeline.dimensions;
  write_json(folder / kSettings, settings);
}

}  // namespace hybrid_trainer
