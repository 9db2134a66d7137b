#include "hybrid_trainer/memory/memory_config.h"

#include <filesystem>

namespace hybrid_trainer {

const std::vector<std::string>& placement_names() {
  static const std::vector<std::string> names{"device", "host", "file"};
  return names;
}

KeyNeed any_use_of_files() {
  KeyNeed need = KeyNeed::of({"memory.weights", "memory.optimizer_state", "memory.activations",
                              "parts[].place", "phases.asynchronous_optimizer.exact_state"},
                             {"file"},
                             "no data of this run is stored in a file; see memory.weights, "
                             "memory.optimizer_state and memory.activations");
  need.any_of.push_back({"memory.device_map", KeyTest::Kind::kIsNoneOf, {""}});
  need.any_of.push_back({"memory.plan", KeyTest::Kind::kIsOneOf, {"auto"}});
  need.any_of.push_back(
      {"predict_aware_memory.offload_strategy", KeyTest::Kind::kIsOneOf, {"nvme_offload"}});
  return need;
}

std::string MemoryConfig::scratch_folder() const {
  if (!folder.empty()) return folder;
  std::error_code error;
  const std::filesystem::path of_system = std::filesystem::temp_directory_path(error);
  if (!error) return of_system.string();
  throw MissingInput(concat("the system has no folder for temporary files (TMPDIR: ",
                            error.message(), "); set TMPDIR or memory.folder to a folder"));
}

PredictAwareMemoryConfig PredictAwareMemoryConfig::conservative() {
  PredictAwareMemoryConfig config;
  config.offload_strategy = "none";
  return config;
}

PredictAwareMemoryConfig PredictAwareMemoryConfig::balanced() { return {}; }

PredictAwareMemoryConfig PredictAwareMemoryConfig::aggressive() {
  PredictAwareMemoryConfig config;
  config.async_restore_lookahead = 1;
  return config;
}

}  // namespace hybrid_trainer
