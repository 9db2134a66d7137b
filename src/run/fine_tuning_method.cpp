#include "src/run/fine_tuning_method.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/hugging_face/hugging_face.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kLongestRow = 1024;

/// Returns the weight format for qlora: the folder's own if its weights are quantized, else nf4.
std::string quantized_base(const ModelFolder& folder) {
  if (folder.is_gguf() && is_mostly_quantized(folder.gguf())) return kFileBase;
  const std::string held = quantization_of_hugging_face(folder);
  return held.empty() ? "nf4" : held;
}

void check_name(const std::string& method) {
  static const std::vector<std::string> names{"full", "lora", "dora", "qlora"};
  if (std::ranges::count(names, method) == 0)
    throw UsageError(choice_problem("--method", method, names));
}

bool has_quantized_base(const HybridTrainerConfig& config) {
  if (config.lora.is_on()) return is_quantized_base(config.lora.base);
  return std::ranges::any_of(config.parts, [&](const PartConfig& part) {
    return part.is_adapted() && is_quantized_base(part.base.value_or(config.lora.base));
  });
}

}  // namespace

std::int64_t usual_row_length(const ModelConfig& model) {
  return std::min(kLongestRow, model.context);
}

HybridTrainerConfig fine_tuning_config(const ModelFolder& folder, const std::string& method) {
  check_name(method);
  HybridTrainerConfig config;
  config.model = read_hugging_face_model_config(folder, 0);
  const ModelFamily& family = find_family(config.model.family);
  if (const std::string& layout = family.fine_tuning.layout; !layout.empty()) {
    config.data.layout = layout;
    config.data.sequence_length = usual_row_length(config.model);
  }
  config.data.batch_size = family.fine_tuning.batch_size;
  config.optimizer.name = "adamw";
  config.optimizer.learning_rate = family.fine_tuning.learning_rate;
  config.optimizer.weight_decay = 0;
  config.phases.max_predict_steps = 0;  // no measurement shows a gain from predicting here
  if (method == "full") return config;
  config.optimizer.learning_rate = 2e-4;
  set_method(config, method, method == "qlora" ? quantized_base(folder) : "");
  return config;
}

void set_method(HybridTrainerConfig& config, const std::string& method,
                const std::string& base_of_qlora) {
  constexpr std::int64_t kRank = 16;
  if (method.empty()) return;
  check_name(method);
  if (method == "full") return;
  const std::string base = method == "qlora" ? base_of_qlora : "bf16";
  config.lora.alpha = 2 * kRank;
  if (method == "dora") config.lora.variant = "dora";
  const auto& patterns = find_family(config.model.family).adapted_parts;
  if (patterns.empty()) {
    config.lora.rank = kRank;
    config.lora.base = base;
  }
  for (const std::string& pattern : patterns) {
    if (std::ranges::count(config.parts, pattern, &PartConfig::pattern) > 0) continue;
    config.parts.push_back({.pattern = pattern, .lora = kRank, .base = base});
  }
  for (const std::string& pattern : find_family(config.model.family).frozen_parts)
    if (std::ranges::count(config.parts, pattern, &PartConfig::pattern) == 0)
      config.parts.push_back({.pattern = pattern, .base = "bf16"});
}

std::string method_of_run(const HybridTrainerConfig& run) {
  if (has_quantized_base(run)) return "qlora";
  if (!run.has_adapters()) return "full";
  return run.lora.variant == "dora" ? "dora" : "lora";
}

void check_method_of_run(const std::string& method, const HybridTrainerConfig& run,
                         bool sets_base) {
  if (method.empty()) return;
  check_name(method);
  const bool is_quantized = has_quantized_base(run);
  const std::string own = method_of_run(run);
  const bool is_lora = method == "lora" && run.has_adapters() && (!is_quantized || sets_base);
  if (method == own || is_lora) return;
  throw UsageError(concat("--method: got ", method, ", but the run trains ", own,
                          "; leave --method out to continue the run, or start a new run"));
}

void check_method(const std::string& method, const HybridTrainerConfig& config,
                  const ModelFolder& folder) {
  const LoraConfig& lora = config.lora;
  const std::string held = quantization_of_hugging_face(folder);
  if (lora.is_on() && is_quantized_base(lora.base) && !held.empty() && held != lora.base)
    throw UsageError(concat("lora.base: got ", lora.base, ", but the weights in ", folder.string(),
                            " are already quantized; want ", held,
                            ", or the original folder, which is not quantized"));
  if (lora.is_on() && lora.base == kFileBase && !folder.is_gguf())
    throw UsageError(concat("lora.base: got file, which requires a GGUF file, but ",
                            folder.string(),
                            " is not a GGUF file; want nf4, or a GGUF file as --model"));
  if (method == "full" && lora.is_on())
    throw UsageError(concat("--method full and --set lora.rank=", lora.rank,
                            ": lora.rank applies only to adapters; want --method lora or qlora"));
  if (method != "full" && !config.has_adapters())
    throw UsageError(concat(
        "--method ", method,
        " and --set lora.rank=0, which trains no adapters; want a rank above 0, or --method full"));
  if (method == "qlora" && !has_quantized_base(config))
    throw UsageError(
        concat("--method qlora and --set lora.base=", lora.base,
               ", which is not quantized; want nf4, fp4, mxfp4, int8 or file, or --method lora"));
}

}  // namespace hybrid_trainer
