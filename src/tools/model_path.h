#pragma once

#include <boost/program_options.hpp>
#include <string>

namespace hybrid_trainer {

/// The file or folder that a model's name on the command line means: `ollama:NAME` is the GGUF file of
/// a model that Ollama has downloaded, anything else a path. Throws MissingInput, DataError.
std::string model_path(const std::string& given);

/// The value of an option that names a model.
boost::program_options::typed_value<std::string>* model_value(std::string& path,
                                                              const char* value_name = "HF_DIR");

}  // namespace hybrid_trainer
