#include "src/tools/fine_tuning_method.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/hugging_face/gguf_weights.h"
#include "hybrid_trainer/hugging_face/hugging_face.h"
#include "hybrid_trainer/speech/clip_features.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kLongestRow = 1024;

/// The form of a base of few bits: that of the weights, where they have one already.
std::string quantized_base(const std::filesystem::path& folder) {
  if (is_gguf_file(folder) && is_mostly_blocks(folder)) return kFileBase;
  const std::string held = quantization_of_hugging_face(folder);
  return held.empty() ? "nf4" : held;
}

void check_name(const std::string& method) {
  if (std::ranges::count(fine_tuning_methods(), method) == 0)
    throw UsageError(choice_problem("--method", method, fine_tuning_methods()));
}

}  // namespace

const std::vector<std::string>& fine_tuning_methods() {
  static const std::vector<std::string> names{"full", "lora", "qlora"};
  return names;
}

HybridTrainerConfig fine_tuning_config(const std::filesystem::path& folder,
                                       const std::string& method) {
  check_name(method);
  HybridTrainerConfig config;
  config.model = read_hugging_face_model_config(folder, 0);
  config.data.layout = "packed";
  config.data.sequence_length = std::min(kLongestRow, config.model.context);
  config.data.batch_size = 4;
  config.optimizer.name = "adamw";
  config.optimizer.learning_rate = 2e-5;
  config.optimizer.weight_decay = 0;
  config.phases.max_predict_steps = 0;  // no measurement shows that predicting pays here
  const bool hears = heard_seconds(config.model) > 0;
  if (hears) config.data.layout = "apart";
  if (hears) config.optimizer.learning_rate = 1e-5;
  if (method == "full") return config;
  config.optimizer.learning_rate = 2e-4;
  config.lora.rank = 16;
  config.lora.alpha = 32;
  config.lora.base = method == "qlora" ? quantized_base(folder) : "bf16";
  return config;
}

void check_method_of_run(const std::string& method, const HybridTrainerConfig& run,
                         bool sets_base) {
  if (method.empty()) return;
  check_name(method);
  const bool is_quantized = run.lora.is_on() && is_quantized_base(run.lora.base);
  const std::string own = is_quantized ? "qlora" : run.lora.is_on() ? "lora" : "full";
  if (method == own || (method == "lora" && is_quantized && sets_base)) return;
  throw UsageError(concat("--method: got ", method, ", but the run trains ", own,
                          "; leave --method out to go on with the run, or begin another one"));
}

void check_method(const std::string& method, const HybridTrainerConfig& config,
                  const std::filesystem::path& folder) {
  const LoraConfig& lora = config.lora;
  const std::string held = quantization_of_hugging_face(folder);
  if (lora.is_on() && is_quantized_base(lora.base) && !held.empty() && held != lora.base)
    throw UsageError(concat("lora.base: got ", lora.base, ", and the weights of ", folder.string(),
                            " are quantized already; want ", held,
                            ", or the folder that they were made from"));
  if (lora.is_on() && lora.base == kFileBase && !is_gguf_file(folder))
    throw UsageError(concat("lora.base: got file, which keeps the blocks of a GGUF file, and ",
                            folder.string(), " is none; want such a file as --model, or nf4"));
  if (method == "full" && lora.is_on())
    throw UsageError(concat("--method full and --set lora.rank=", lora.rank,
                            ", which trains adapters alone; want --method lora or qlora"));
  if (method != "full" && !lora.is_on())
    throw UsageError(concat("--method ", method, " and --set lora.rank=0, which trains no ",
                            "adapters; want a rank above 0, or --method full"));
  if (method == "qlora" && !is_quantized_base(lora.base))
    throw UsageError(
        concat("--method qlora and --set lora.base=", lora.base,
               ", which is not quantized; want nf4, fp4, mxfp4, int8 or file, or --method lora"));
}

}  // namespace hybrid_trainer
