#pragma once

#include <boost/json.hpp>

#include "src/gguf/gguf_file.h"
#include "src/model_files/hugging_face/folder_weights.h"

namespace hybrid_trainer {

/// Derives the config.json of an equivalent folder from a GGUF file's values and tensors. Throws
/// DataError, naming the value, for other architectures and settings that folders cannot express.
boost::json::object gguf_config(const GgufFile& file);

/// Returns the file's pooling as a value of model.pooling, or "". Throws DataError for other ones.
std::string gguf_pooling(const GgufFile& file);

/// Returns the linear layers after pooling that the file has (dense_2, dense_3).
std::vector<DenseLayer> gguf_dense(const GgufFile& file);

/// Returns the file's head if it has one that differs from the token table; else null.
const GgufTensor* own_head(const GgufFile& file);

/// Calls visit(parameter, weight) for each weight of the network. Names in the file follow from
/// `model`. Skips adapters, and a class head that the file lacks. Throws DataError if a tensor is
/// missing, has another shape, or belongs to no part; IoError.
void visit_gguf_weights(const GgufFile& file, Network& network, const ModelConfig& model,
                        const std::function<void(Parameter&, const FolderWeight&)>& visit);

/// Returns whether at least nine tenths of the matrices' elements are quantized in blocks.
bool is_mostly_quantized(const GgufFile& file);

bool is_all_bf16(const GgufFile& file);

/// Returns Ollama's model folder: $OLLAMA_MODELS, ~/.ollama/models, or the Linux service's.
fs::path ollama_folder();

/// Returns the sorted names of the models in such a folder: "llama3.2:1b", "user/model:latest".
std::vector<std::string> ollama_models(const fs::path& folder);

/// Returns the GGUF file of a model in such a folder. `name` is as in Ollama: the tag defaults to
/// "latest", the user to Ollama's own models. Throws MissingInput, naming the existing models, and
/// DataError if the model is not a single GGUF file.
fs::path ollama_model(const fs::path& folder, const std::string& name);

}  // namespace hybrid_trainer
