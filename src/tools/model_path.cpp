#include "src/tools/model_path.h"

#include <string_view>

#include "hybrid_trainer/hugging_face/ollama_models.h"

namespace hybrid_trainer {

std::string model_path(const std::string& given) {
  constexpr std::string_view kOllama = "ollama:";
  if (!given.starts_with(kOllama)) return given;
  return ollama_model(ollama_folder(), given.substr(kOllama.size())).string();
}

boost::program_options::typed_value<std::string>* model_value(std::string& path,
                                                              const char* value_name) {
  return boost::program_options::value<std::string>()
      ->notifier([&path](const std::string& given) { path = model_path(given); })
      ->value_name(value_name);
}

}  // namespace hybrid_trainer
