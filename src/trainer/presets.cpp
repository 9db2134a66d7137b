#include "hybrid_trainer/trainer/presets.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"

namespace hybrid_trainer {
namespace {

struct Preset {
  const char* name;
  ModelConfig model;
  std::int64_t batch_size;
  std::int64_t sequence_length;
  const char* optimizer;
  double learning_rate;
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> table{
      {"tiny", {.layers = 4, .heads = 4, .width = 128, .context = 64}, 16, 64, "muon", 1e-2},
      {"small", {.layers = 4, .heads = 4, .width = 256, .context = 256}, 8, 256, "muon", 1e-2},
      {"gpt2-124m",
       {.layers = 12, .heads = 12, .width = 768, .context = 1024},
       4,
       1024,
       "adamw",
       6e-4},
      {"gpt2-350m",
       {.layers = 24, .heads = 16, .width = 1024, .context = 1024},
       4,
       1024,
       "adamw",
       3e-4},
      {"gpt2-774m",
       {.layers = 36, .heads = 20, .width = 1280, .context = 1024},
       2,
       1024,
       "adamw",
       2.5e-4},
      {"gpt2-1558m",
       {.layers = 48, .heads = 25, .width = 1600, .context = 1024},
       1,
       1024,
       "adamw",
       2e-4},
  };
  return table;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& preset : presets()) names.emplace_back(preset.name);
  return names;
}

HybridTrainerConfig preset_config(const std::string& name) {
  for (const auto& preset : presets()) {
    if (name != preset.name) continue;
    HybridTrainerConfig config;
    config.model = preset.model;
    config.data.batch_size = preset.batch_size;
    config.data.sequence_length = preset.sequence_length;
    config.optimizer.name = preset.optimizer;
    config.optimizer.learning_rate = preset.learning_rate;
    return config;
  }
  throw ConfigError(
      {concat("--preset: there is no preset \"", name, "\"", name_hint(name, preset_names()))});
}

}  // namespace hybrid_trainer
