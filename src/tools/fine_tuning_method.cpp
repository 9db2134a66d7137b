#include "src/tools/fine_tuning_method.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kLongestRow = 1024;

}  // namespace

const std::vector<std::string>& fine_tuning_methods() {
  static const std::vector<std::string> names{"full", "lora", "qlora"};
  return names;
}

HybridTrainerConfig fine_tuning_config(const ModelConfig& model, const std::string& method) {
  if (std::ranges::count(fine_tuning_methods(), method) == 0)
    throw UsageError(choice_problem("--method", method, fine_tuning_methods()));
  HybridTrainerConfig config;
  config.model = model;
  config.data.layout = "packed";
  config.data.sequence_length = std::min(kLongestRow, model.context);
  config.data.batch_size = 4;
  config.optimizer.name = "adamw";
  config.optimizer.learning_rate = 2e-5;
  config.optimizer.weight_decay = 0;
  if (method == "full") return config;
  config.optimizer.learning_rate = 2e-4;
  config.lora.rank = 16;
  config.lora.alpha = 32;
  config.lora.base = method == "qlora" ? "nf4" : "bf16";
  return config;
}

}  // namespace hybrid_trainer
