#include "hybrid_trainer/memory/memory_config.h"

#include <filesystem>

namespace hybrid_trainer {

const std::vector<std::string>& placement_names() {
  static const std::vector<std::string> names{"device", "host", "file"};
  return names;
}

std::string MemoryConfig::scratch_folder() const {
  return folder.empty() ? std::filesystem::temp_directory_path().string() : folder;
}

}  // namespace hybrid_trainer
