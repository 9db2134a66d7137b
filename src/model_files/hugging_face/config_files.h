#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/models/model_family.h"
#include "src/files/folder_files.h"
#include "src/models/hugging_face/config_reader.h"

namespace hybrid_trainer {

/// Returns the config.json of a model. `end_of_text` is the id of the token that starts and ends
/// documents, unless `token_ids` (see token_ids_in) has other ids. `quantization` is a name of
/// lora.base (see quantization_of_hugging_face).
json::object hugging_face_config(const ModelConfig& model, const HuggingFaceLayout& layout,
                                 std::optional<std::int32_t> end_of_text, DType dtype,
                                 const std::string& quantization = "",
                                 const std::string& token_ids = "");
/// Adds bos_token_id and eos_token_id, or the values in `token_ids`.
void add_token_ids(json::object& config, std::optional<std::int32_t> end_of_text,
                   const std::string& token_ids);

/// Parses JSON as Python writes it (see with_named_floats). Throws DataError for other values.
json::object parse_python_object(const std::string& text, const std::string& name);

/// Reads a file like parse_python_object. Throws MissingInput.
json::object read_python_object(const FolderFiles& folder, const std::string& name);

/// Reads a file like parse_python_object, including the keys of its text_config. Returns {} if the
/// file does not exist.
json::object python_object_in(const FolderFiles& folder, const std::string& name);

/// Returns the pooling of a class head on the folder's model, as in transformers: the first token
/// of an encoder or the last of a decoder, unless classifier_pooling in config.json says otherwise.
std::string class_pooling(const FolderFiles& folder, const ModelConfig& model);
/// Returns the exported class head's pooling, which differs if folders cannot store model.pooling.
std::string exported_class_pooling(ModelConfig model, const ModelRegistry& registry);

/// The model that a config.json describes, without dropout, and the keys of the file by kind.
struct ReadConfig {
  ModelConfig model;
  std::set<std::string> known{};       // requested keys
  std::vector<std::string> unknown{};  // unknown keys
};
ReadConfig read_hugging_face_config(const json::object& config, const std::string& name,
                                    const ModelRegistry& registry);

/// Merges `ours`, a config.json to write, with `base`, the model's original config.json. Keeps the
/// base's keys whose meaning has not changed, and keys that no family reads. `written` returns the
/// config.json that would be written for a model. Throws DataError.
json::object config_over_base(json::object ours, const json::object& base, const std::string& name,
                              const std::function<json::object(const ModelConfig&)>& written,
                              const ModelRegistry& registry);

}  // namespace hybrid_trainer
