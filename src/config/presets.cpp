#include "hybrid_trainer/config/presets.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"
#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {

std::vector<std::string> preset_names(const ModelRegistry& registry) {
  std::vector<std::string> names;
  for (const ModelFamily& family : registry) {
    for (const ModelPreset& preset : family.presets) names.push_back(preset.name);
  }
  return names;
}

HybridTrainerConfig preset_config(const std::string& name, const ModelRegistry& registry) {
  for (const ModelFamily& family : registry) {
    for (const ModelPreset& preset : family.presets) {
      if (name != preset.name) continue;
      HybridTrainerConfig config;
      config.model = preset.model;
      config.model.family = family.name;
      config.objective = usual_objective(config.model);
      config.data.batch_size = preset.batch_size;
      config.data.sequence_length = preset.sequence_length;
      config.optimizer.name = preset.optimizer;
      config.optimizer.learning_rate = preset.learning_rate;
      return config;
    }
  }
  throw ConfigError({concat("--preset: there is no preset \"", name, "\"",
                            name_hint(name, preset_names(registry)))});
}

}  // namespace hybrid_trainer
