#include "hybrid_trainer/config/hybrid_trainer_config.h"

#include <algorithm>

#include "hybrid_trainer/core/device.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"
#include "hybrid_trainer/memory/device_map.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/config/refusal_checks.h"
#include "src/config/stretches.h"

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

std::string HybridTrainerConfig::optimizer_state_home() const {
  if (phases.delays_updates()) return phases.asynchronous_optimizer.exact_state;
  const bool is_on_host = optimizer.paged && memory.optimizer_state == "device";
  return is_on_host ? "host" : memory.optimizer_state;
}

void HybridTrainerConfig::collect_finder_problems(std::vector<std::string>& found) const {
  const std::int64_t least = schedule.warmup_steps + learning_rate_finder.interval + 1;
  if (phases.warmup_steps >= least) return;
  found.push_back(concat("phases.warmup_steps: got ", phases.warmup_steps,
                         ", too short to find a learning rate: probes begin ",
                         learning_rate_finder.interval, " updates after schedule.warmup_steps ",
                         schedule.warmup_steps, "; want at least ", least));
}

void HybridTrainerConfig::collect_carry_problems(std::vector<std::string>& found) const {
  if (!data.carry_state) return;
  const auto refuse = [&](bool is_on, const char* why) {
    if (is_on) found.push_back(concat("data.carry_state: got true, but ", why));
  };
  refuse(data.is_rows(), "rows of examples are texts of their own; want data.layout windows");
  refuse(!stretches.empty(), "stretches change the rows of a batch; want none");
  refuse(training.cuda_graphs, "training.cuda_graphs cannot record states; want it off");
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
  return checkpoint.every_minutes > 0 && !divergence.rolls_back() && !phases.runs_ahead_of_ranks();
}

void HybridTrainerConfig::collect_objective_problems(std::vector<std::string>& found) const {
  if (masks() && data.is_rows()) {
    found.push_back(concat("objective: got masked, but data.layout is ", data.layout,
                           ", and files of examples teach answers; want next_token, or a data "
                           "folder (windows)"));
  }
  if (masks() == model.two_way) return;
  found.push_back(
      masks() ? "objective: got masked, but the model sees earlier tokens alone (model.two_way is "
                "false); want next_token, or an encoder, such as --preset bk-tiny"
              : "objective: got next_token, but the model is an encoder (model.two_way) and sees "
                "the tokens that it would tell; want masked, or model.two_way=false");
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
  collect_objective_problems(found);
  collect_stretch_problems(*this, found);
  collect_carry_problems(found);
  if (learning_rate_finder.is_on()) collect_finder_problems(found);
  if (std::ranges::count(method_names(), phases.method) > 0)
    collect_refusals(refusals_of(phases.method), *this, "phases.method " + phases.method, found);
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

}  // namespace hybrid_trainer
