#include "src/tools/fine_tuning_method.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/hugging_face/hugging_face.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kLongestRow = 1024;

}  // namespace

const std::vector<std::string>& fine_tuning_methods() {
  static const std::vector<std::string> names{"full", "lora", "qlora"};
  return names;
}

HybridTrainerConfig fine_tuning_config(const std::filesystem::path& folder,
                                       const std::string& method) {
  if (std::ranges::count(fine_tuning_methods(), method) == 0)
    throw UsageError(choice_problem("--method", method, fine_tuning_methods()));
  HybridTrainerConfig config;
  config.model = read_hugging_face_model_config(folder, 0);
  config.data.layout = "packed";
  config.data.sequence_length = std::min(kLongestRow, config.model.context);
  config.data.batch_size = 4;
  config.optimizer.name = "adamw";
  config.optimizer.learning_rate = 2e-5;
  config.optimizer.weight_decay = 0;
  if (method == "full") return config;
  config.optimizer.learning_rate = 2e-4;
  config.lora.rank = 16;
  config.lora.alpha = 32;
  const std::string held = quantization_of_hugging_face(folder);
  config.lora.base = method != "qlora" ? "bf16" : held.empty() ? "nf4" : held;
  return config;
}

}  // namespace hybrid_trainer
