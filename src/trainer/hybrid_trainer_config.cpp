#include "hybrid_trainer/trainer/hybrid_trainer_config.h"

#include <algorithm>

#include "hybrid_trainer/core/device.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"
#include "hybrid_trainer/memory/device_map.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/trainer/late_gradient_checks.h"
#include "src/trainer/stretches.h"

namespace hybrid_trainer {

const std::vector<std::string>& precision_names() {
  static const std::vector<std::string> names{"fp32", "bf16", "auto"};
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

const std::vector<Spelling>& HybridTrainerConfig::spellings() {
  static const std::vector<Spelling> spellings{
      {.name = "training.memory_budget_mb", .key = "memory.device_budget", .unit = "MB"}};
  return spellings;
}

std::string HybridTrainerConfig::optimizer_state_home() const {
  if (phases.lacks_optimizer_state()) return phases.exact_state;
  const bool is_on_host = optimizer.paged && memory.optimizer_state == "device";
  return is_on_host ? "host" : memory.optimizer_state;
}

void HybridTrainerConfig::collect_finder_problems(std::vector<std::string>& found) const {
  if (phases.lacks_optimizer_state()) {
    found.push_back(concat("learning_rate_finder.mode: got ", learning_rate_finder.mode,
                           ", which moves masters; with phases.ingredient ", phases.ingredient,
                           ", which keeps none on the device, want off"));
  }
  const std::int64_t least = schedule.warmup_steps + learning_rate_finder.interval + 1;
  if (phases.warmup_steps >= least) return;
  found.push_back(concat("phases.warmup_steps: got ", phases.warmup_steps,
                         ", too short to find a learning rate: probes begin ",
                         learning_rate_finder.interval, " updates after schedule.warmup_steps ",
                         schedule.warmup_steps, "; want at least ", least));
}

bool HybridTrainerConfig::updates_at_once() const {
  const bool norm_may_stop_it =
      divergence.max_skipped_updates > 0 || divergence.critical_after > 0 ||
      std::max(divergence.on_caution, divergence.on_warning) >= Recovery::kSkipBatch ||
      divergence.rolls_back();
  return memory.gradients == "consume" && optimizer.clip_norm == 0 && !norm_may_stop_it &&
         phases.max_predict_steps == 0 && !optimizer.paged;
}

bool HybridTrainerConfig::saves_by_time() const {
  return checkpoint.every_minutes > 0 && !divergence.rolls_back() && !phases.lacks_other_ranks();
}

/// What does not go with masters and state of phases.exact_state.
void HybridTrainerConfig::collect_speculation_problems(std::vector<std::string>& found) const {
  const auto refuse = [&](const std::string& key, const auto& got, const auto& want) {
    if (got == want) return;
    found.push_back(concat(key, ": got ", got, ", but with phases.ingredient optimizer_state, ",
                           "phases.exact_state says where masters and state are; want ", want));
  };
  refuse("memory.optimizer_state", memory.optimizer_state, std::string("device"));
  refuse("memory.weights", memory.weights, std::string("device"));
  refuse("memory.device_map", memory.device_map, std::string());
  refuse("memory.gradients", memory.gradients, std::string("keep"));
  const auto cannot_be_rounded = [&](const std::string& key, const auto& got, const char* want) {
    found.push_back(concat(key, ": got ", got, ", but with memory.gradient_bits 16 what is on its ",
                           "way is in bf16 and late by one step; want ", want,
                           ", or memory.gradient_bits 32"));
  };
  const bool rounds = memory.gradient_bits == 16;
  if (rounds && phases.lag != 1) cannot_be_rounded("phases.lag", phases.lag, "1");
  if (rounds && phases.device_side != "anticipated" && phases.device_side != "none")
    cannot_be_rounded("phases.device_side", phases.device_side, "anticipated or none");
  refuse("optimizer.paged", optimizer.paged ? "true" : "false", std::string("false"));
  if (optimizer.slow_momentum > 0) {
    found.push_back(concat("optimizer.slow_momentum: got ", optimizer.slow_momentum,
                           ", which runs ahead of updates as they are made, and with "
                           "phases.ingredient optimizer_state they are late; want 0"));
  }
  if (training.average_weights > 0) {
    found.push_back(concat("training.average_weights: got ", training.average_weights,
                           ", but with phases.ingredient optimizer_state updates are made "
                           "elsewhere; want 0"));
  }
  if (phases.device_side == "shared" || phases.device_side == "momentum") {
    found.push_back(
        concat("phases.device_side: got ", phases.device_side,
               ", which is for phases.ingredient other_ranks; want anticipated, sketch, "
               "selective or none"));
  }
  const auto check_recovery = [&](const char* key, Recovery got) {
    if (got != Recovery::kRaiseThreshold && got != Recovery::kResetPredictor) return;
    found.push_back(
        concat("divergence.", key, ": got ", name_of(got),
               ", but the asynchronous optimizer (phases.ingredient optimizer_state) have neither "
               "confidence nor predictor; want another one"));
  };
  check_recovery("on_caution", divergence.on_caution);
  check_recovery("on_warning", divergence.on_warning);
  check_recovery("on_critical", divergence.on_critical);
  const auto check = [&](const std::string& path, const OptimizerConfig& given) {
    if (given.state_bits != 32) {
      found.push_back(concat(path, "state_bits: got ", given.state_bits,
                             ", but an exact state has 32 bits; want 32"));
    }
    if (rounds && given.name == "lion") cannot_be_rounded(path + "name", "lion", "adamw or muon");
    const std::vector<std::string>& names = predictable_optimizer_names();
    if (std::find(names.begin(), names.end(), given.name) != names.end()) return;
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    found.push_back(concat(path, "name: got ", given.name,
                           ", whose updates cannot be predicted (phases.ingredient "
                           "optimizer_state); want one of ",
                           all));
  };
  check("optimizer.", optimizer);
  for (std::size_t i = 0; i < optimizer.groups.size(); ++i)
    check(concat("optimizer.groups[", i, "]."), optimizer.of(optimizer.groups[i]));
}

std::vector<std::string> HybridTrainerConfig::problems(const ModelRegistry& registry) const {
  std::vector<std::string> found;
  collect_range_problems(*this, "", found);
  collect_model_problems(model, found, registry);
  collect_device_map_problems(memory, found);
  optimizer.collect_problems("optimizer", found);
  if (data.sequence_length > model.context) {
    found.push_back(concat("data.sequence_length: got ", data.sequence_length,
                           ", want at most model.context ", model.context));
  }
  if (const auto bits = memory.gradient_bits; bits != 32 && bits != 16) {
    found.push_back(concat("memory.gradient_bits: got ", bits, ", want 32 or 16"));
  } else if (bits == 16 && !phases.lacks_optimizer_state()) {
    found.push_back(
        "memory.gradient_bits: got 16, which is for the asynchronous optimizer; want 32, or "
        "phases.ingredient "
        "optimizer_state");
  }
  if (const auto bits = memory.activation_bits; bits != 32 && bits != 16 && bits != 8)
    found.push_back(concat("memory.activation_bits: got ", bits, ", want 32, 16 or 8"));
  if (const std::int64_t bytes = distributed.bucket_bytes; bytes > 0 && bytes < 4096) {
    found.push_back(concat("distributed.bucket_bytes: got ", bytes,
                           ", want at least 4096, or 0: by the weights"));
  }
  const auto cannot_be_recorded = [&](const char* key, const std::string& got, const char* want) {
    if (!training.cuda_graphs || got == want) return;
    found.push_back(concat("memory.", key, ": got \"", got,
                           "\", which training.cuda_graphs cannot record; want ", want));
  };
  cannot_be_recorded("activations", memory.activations, "device");
  cannot_be_recorded("weights", memory.weights, "device");
  cannot_be_recorded("device_map", memory.device_map, "");
  cannot_be_recorded("gradients", memory.gradients, "keep");
  collect_stretch_problems(*this, found);
  if (learning_rate_finder.is_on()) collect_finder_problems(found);
  for (std::size_t i = 0; i < phases.arms.size(); ++i) {
    if (phases.arms[i].steps <= phases.max_predict_steps || phases.max_predict_steps == 0) continue;
    found.push_back(concat("phases.arms[", i, "].steps: got ", phases.arms[i].steps,
                           ", want at most phases.max_predict_steps ", phases.max_predict_steps));
  }
  if (phases.lacks_optimizer_state()) collect_speculation_problems(found);
  if (phases.lacks_other_ranks()) collect_late_gradient_problems(*this, found);
  collect_local_step_problems(phases, found);
  if (phases.predicts_backward() && optimizer_state_home() != "device" &&
      predict_aware_memory.offload_strategy == "drop_and_reinitialize") {
    found.push_back(concat("predict_aware_memory.offload_strategy: got drop_and_reinitialize, but ",
                           optimizer.paged ? std::string("optimizer.paged")
                                           : "memory.optimizer_state " + memory.optimizer_state,
                           " leaves nothing on the device to drop; want none"));
  }
  if (predict_aware_memory.offload_strategy == "pinned_cpu_offload" &&
      predict_aware_memory.offload_target != "memory") {
    found.push_back(concat("predict_aware_memory.offload_target: got \"",
                           predict_aware_memory.offload_target,
                           "\", but pinned_cpu_offload keeps the state in memory; want memory, or "
                           "the strategy nvme_offload"));
  }
  if (!names_a_device(device)) {
    found.push_back(concat("device: got \"", device, "\", want cpu, cuda, cuda:N or auto",
                           name_hint(device, {"cpu", "cuda", "cuda:0", "auto"})));
  }
  return found;
}

void HybridTrainerConfig::validate(const ModelRegistry& registry) const {
  if (auto found = problems(registry); !found.empty()) throw ConfigError(std::move(found));
}

HybridTrainerConfig HybridTrainerConfigBuilder::build(const ModelRegistry& registry) const {
  config_.validate(registry);
  return config_;
}

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
