#include "hybrid_trainer/config/hybrid_trainer_config.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/memory/device_map.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/config/applied_parts.h"
#include "src/config/cross_checks.h"
#include "src/config/part_checks.h"
#include "src/config/refusal_checks.h"

namespace hybrid_trainer {

const std::vector<std::string>& precision_names() {
  static const std::vector<std::string> names{"fp32", "bf16", "fp16", "fp8", "auto"};
  return names;
}

const std::string& MixedPrecisionConfig::of(Phase phase) const {
  switch (phase) {
    case Phase::kWarmup:
      return warmup;
    case Phase::kFull:
      return full;
    case Phase::kPredict:
      return predict;
    case Phase::kCorrect:
      break;
  }
  return correct;
}

HybridTrainerConfigBuilder HybridTrainerConfig::builder() { return {}; }

HybridTrainerConfig HybridTrainerConfig::conservative() {
  HybridTrainerConfig config;
  config.phases = PhaseConfig::conservative();
  config.mixed_precision = MixedPrecisionConfig::conservative();
  config.gradient_accumulation = GradientAccumulationConfig::conservative();
  config.predict_aware_memory = PredictAwareMemoryConfig::conservative();
  return config;
}

HybridTrainerConfig HybridTrainerConfig::balanced() {
  HybridTrainerConfig config;
  config.phases = PhaseConfig::balanced();
  config.mixed_precision = MixedPrecisionConfig::balanced();
  config.gradient_accumulation = GradientAccumulationConfig::balanced();
  config.predict_aware_memory = PredictAwareMemoryConfig::balanced();
  return config;
}

HybridTrainerConfig HybridTrainerConfig::aggressive() {
  HybridTrainerConfig config;
  config.phases = PhaseConfig::aggressive();
  config.mixed_precision = MixedPrecisionConfig::aggressive();
  config.gradient_accumulation = GradientAccumulationConfig::aggressive();
  config.predict_aware_memory = PredictAwareMemoryConfig::aggressive();
  return config;
}

bool HybridTrainerConfig::has_adapters() const {
  return lora.is_on() || std::ranges::any_of(parts, &PartConfig::is_adapted);
}

bool HybridTrainerConfig::freezes() const {
  return lora.is_on() || std::ranges::any_of(parts, &PartConfig::freezes);
}

HybridTrainerConfig HybridTrainerConfig::with_parts() const { return with_applied_parts(*this); }

std::string HybridTrainerConfig::optimizer_state_home() const {
  if (phases.delays_updates()) return phases.asynchronous_optimizer.exact_state;
  const bool is_on_host = optimizer.paged && memory.optimizer_state == "device";
  return is_on_host ? "host" : memory.optimizer_state;
}

bool HybridTrainerConfig::computes_in(const std::string& precision) const {
  const bool predicts = phases.max_predict_steps > 0;
  const auto is_of = [&](Phase phase) { return mixed_precision.of(phase) == precision; };
  return is_of(Phase::kWarmup) || is_of(Phase::kFull) ||
         (predicts && (is_of(Phase::kPredict) || is_of(Phase::kCorrect))) ||
         std::ranges::any_of(stretches, [&](const StretchConfig& stretch) {
           return stretch.precision == precision;
         });
}

bool HybridTrainerConfig::updates_at_once() const {
  const bool norm_may_stop_it =
      divergence.max_skipped_updates > 0 || divergence.critical_after > 0 ||
      std::max(divergence.on_caution, divergence.on_warning) >= Recovery::kSkipBatch ||
      divergence.rolls_back();
  return memory.gradients == "consume" && optimizer.clip_norm == 0 && !norm_may_stop_it &&
         phases.max_predict_steps == 0 && !optimizer.paged && !computes_in("fp16");
}

bool HybridTrainerConfig::saves_by_time() const {
  return checkpoint.every_minutes > 0 && !divergence.rolls_back() && !phases.runs_ahead_of_ranks();
}

std::vector<std::string> HybridTrainerConfig::problems(const ModelRegistry& registry) const {
  std::vector<std::string> found;
  collect_range_problems(*this, "", found);
  collect_model_problems(model, found, registry);
  collect_part_problems(*this, found);
  const HybridTrainerConfig whole = with_parts();
  collect_device_map_problems(whole.memory, found);
  whole.optimizer.collect_problems("optimizer", found);
  collect_cross_problems(whole, found);
  if (std::ranges::count(method_names(), phases.method) > 0)
    collect_refusals(refusals_of(phases.method), whole, "phases.method " + phases.method, found);
  return found;
}

void HybridTrainerConfig::validate(const ModelRegistry& registry) const {
  if (auto found = problems(registry); !found.empty()) throw ConfigError(std::move(found));
}

HybridTrainerConfig HybridTrainerConfigBuilder::build(const ModelRegistry& registry) const {
  config_.validate(registry);
  return config_;
}

}  // namespace hybrid_trainer
