#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/models/language_model.h"
#include "src/gguf/gguf_file.h"
#include "src/model_files/hugging_face/folder_weights.h"

namespace hybrid_trainer {

/// The config.json of the folder that a GGUF file would be: what its values and tensors tell of the
/// model. Throws DataError, which names the value, for another architecture and for what no folder can
/// say.
boost::json::object gguf_config(const GgufFile& file);

/// The tensor of a head of its own, where the file has one that differs from the token table; else null.
const GgufTensor* own_head(const GgufFile& file);

/// Calls visit(parameter, weight) for each weight of a model that a GGUF file holds, whatever family the
/// file's values tell of; adapters are left out. Throws DataError
/// where a tensor is missing, of another shape, or belongs to no part of the model; IoError.
void visit_gguf_weights(const GgufFile& file, Network& network, const ModelConfig& model,
                        const std::function<void(Parameter&, const FolderWeight&)>& visit);

/// Whether nine tenths of the numbers of its matrices are in blocks of few bits.
bool is_mostly_blocks(const GgufFile& file);

/// Whether all matrices of the file are bf16.
bool is_all_bf16(const GgufFile& file);

/// The folder of models that Ollama has downloaded: $OLLAMA_MODELS, else ~/.ollama/models, or that of
/// the service on Linux where the home folder has none.
std::filesystem::path ollama_folder();

/// The names of the models in such a folder, in order: "llama3.2:1b", "user/model:latest".
std::vector<std::string> ollama_models(const std::filesystem::path& folder);

/// The GGUF file of a model in such a folder. `name` is as Ollama takes it: without a tag it means
/// "latest", without a user one of Ollama's own. Throws MissingInput, which names the models that are
/// there, and DataError where the model is no single GGUF file.
std::filesystem::path ollama_model(const std::filesystem::path& folder, const std::string& name);

}  // namespace hybrid_trainer
