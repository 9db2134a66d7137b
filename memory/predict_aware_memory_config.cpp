#include "hybrid_trainer/memory/predict_aware_memory_config.h"

namespace hybrid_trainer {

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
