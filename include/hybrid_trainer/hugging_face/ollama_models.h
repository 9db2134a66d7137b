#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hybrid_trainer {

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
