#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/models/model_family.h"
#include "src/files/folder_files.h"
#include "src/models/hugging_face/config_reader.h"

namespace hybrid_trainer {

/// The config.json of a model. `end_of_text`: id of the token that starts and ends documents, unless
/// `token_ids` (see token_ids_in) says more. `quantization`: a name of lora.base, see
/// quantization_of_hugging_face.
boost::json::object hugging_face_config(const ModelConfig& model, const HuggingFaceLayout& layout,
                                        std::optional<std::int32_t> end_of_text, DType dtype,
                                        const std::string& quantization = "",
                                        const std::string& token_ids = "");
/// Adds bos_token_id and eos_token_id, and what else `token_ids` has in their place.
void add_token_ids(boost::json::object& config, std::optional<std::int32_t> end_of_text,
                   const std::string& token_ids);

/// A config.json, or another file of JSON that Python wrote: with NaN and infinities by their names
/// (see with_named_floats). Throws DataError, also where it is no object.
boost::json::object parse_python_object(const std::string& text, const std::string& name);

/// Reads such a file, with the keys that only its text_config has, as of a model of texts and images. An
/// empty object if there is no file.
boost::json::object python_object_in(const FolderFiles& folder, const std::string& name);

/// The model that a config.json describes, without dropout, and what its reader made of the keys.
struct ReadConfig {
  ModelConfig model;
  std::set<std::string> known{};       // keys that it asked for
  std::vector<std::string> unknown{};  // keys that nobody knows
};
/// `name` stands for the file in messages. Throws DataError.
ReadConfig read_hugging_face_config(const boost::json::object& config, const std::string& name,
                                    const ModelRegistry& registry);

/// `ours`, a config.json that is to be written, with what `base` says beside: the config.json that the
/// model began with. Keys whose meaning has not changed stand as there, and so do keys that no family
/// reads. `written`: what would be written of a model. Throws DataError.
boost::json::object config_over_base(
    boost::json::object ours, const boost::json::object& base, const std::string& name,
    const std::function<boost::json::object(const ModelConfig&)>& written,
    const ModelRegistry& registry);

}  // namespace hybrid_trainer
