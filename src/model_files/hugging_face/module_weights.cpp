#include "src/model_files/hugging_face/module_weights.h"

#include <map>

#include "src/files/output_file.h"

namespace hybrid_trainer {

bool is_of_module(const std::string& name) { return name.find('/') != name.npos; }

bool is_of_module(const Parameter& parameter) {
  return is_of_module(parameter.in_files().front().name);
}

bool holds_module(const fs::path& folder, const Parameter& parameter) {
  const fs::path tensor = folder / parameter.in_files().front().name;
  return fs::exists(tensor.parent_path() / "config.json");
}

void read_module_weight(const fs::path& folder, const Parameter& parameter,
                        const std::function<void(const FolderWeight& weight)>& use) {
  std::vector<FileTensor> parts = parameter.in_files();
  const fs::path path = folder / parts.front().name;
  parts.front().name = path.filename().string();
  const HuggingFaceWeights weights(path.parent_path());
  const OpenFolder module{weights, "", "", ""};
  use(WeightInFiles(module, parts, parameter.shape()));
}

void write_module_weights(const std::vector<NamedTensor>& tensors, const fs::path& folder) {
  std::map<fs::path, std::vector<NamedTensor>> modules;
  for (const auto& [name, values] : tensors) {
    const fs::path path = folder / name;
    modules[path.parent_path()].push_back({path.filename().string(), values});
  }
  for (auto& [path, own] : modules) {
    make_folders(path);
    write_safetensors(path / "model.safetensors", std::move(own), {{"format", "pt"}});
  }
}

}  // namespace hybrid_trainer
