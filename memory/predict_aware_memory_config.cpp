#include "hybrid_trainer/memory/predict_aware_memory_config.h"

namespace hybrid_trainer {

const std::vector<std::string>& offload_strategy_names() {
  static const std::vector<std::string> names{"none", "cpu_offload", "drop_and_reinitialize"};
  return names;
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
