#include "src/run/settings_table.h"

#include "hybrid_trainer/core/cuda_runtime.h"
#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/core/units.h"

namespace hybrid_trainer {
namespace {

/// "; embedding by sgd, *.bias by adamw".
std::string groups_text(const OptimizerConfig& optimizer) {
  std::vector<std::string> texts;
  for (const OptimizerGroupConfig& group : optimizer.groups) {
    const OptimizerConfig own = optimizer.of(group);
    texts.push_back(concat(group.match, " by ", own.name, " at ", own.learning_rate));
  }
  return texts.empty() ? "" : "; " + join(texts);
}

/// "; sent in 4 fragments by 8 bits a weight".
std::string exchange_text(const PhaseConfig& phases) {
  std::string text;
  if (phases.local_fragments > 1) text += concat(" in ", phases.local_fragments, " fragments");
  if (phases.exchange_bits < 32) text += concat(" by ", phases.exchange_bits, " bits a weight");
  return text.empty() ? "" : "; sent" + text;
}

std::string phases_line(const PhaseConfig& phases) {
  if (phases.max_predict_steps == 0) return "plain training (phases.max_predict_steps is 0)";
  const std::string common = concat("warmup ", phases.warmup_steps, ", full ", phases.full_steps,
                                    ", predict up to ", phases.max_predict_steps);
  if (phases.takes_local_steps()) {
    return concat(common, ", each rank by itself for ", phases.local_steps,
                  " steps (local SGD), exchanges ", phases.lag,
                  phases.lag == 1 ? " step" : " steps", " late", exchange_text(phases));
  }
  if (phases.lacks_other_ranks()) {
    return concat(common, " with asynchronous gradients ", phases.lag,
                  phases.lag == 1 ? " step" : " steps", " late, predicted by ", phases.device_side);
  }
  if (!phases.predicts_backward()) {
    return concat(common, " with an asynchronous optimizer, updates ", phases.lag,
                  phases.lag == 1 ? " step" : " steps", " late, predicted by ", phases.device_side,
                  ", exact state in ", phases.exact_state == "host" ? "host memory" : "a file");
  }
  std::vector<std::string> arms;
  for (const PredictionArm& arm : phases.arms)
    arms.push_back(concat(arm.predictor, " for ", arm.steps));
  return concat(common, " by ", arms.empty() ? phases.predictor : join(arms), " from confidence ",
                phases.confidence_threshold);
}

std::string finder_text(const LearningRateFinderConfig& finder) {
  if (!finder.is_on()) return "";
  return concat("; warmup probes every ", finder.interval,
                " updates whether the learning rate is too low");
}

std::string precision_line(const HybridTrainer& trainer) {
  std::string text;
  for (Phase phase : kAllPhases) {
    const char* const name = precision_name(trainer.dtype_of(phase));
    text += concat(text.empty() ? "" : ", ", name_of(phase), " ", name);
  }
  const std::string& reason = trainer.precision().reason();
  return reason.empty() ? text : concat(text, "; auto is ", reason);
}

std::string device_line(const Stream& stream) {
  const Device device = stream.device();
  if (device.type == DeviceType::kCpu) return "the processor";
  return concat(name_of(device), ", ", hardware_name_of(device), ", ",
                units::bytes(stream.pool()->use().fresh_total), " taken for its steps");
}

}  // namespace

std::string settings_table(std::vector<NamedText> rows, const HybridTrainerConfig& config,
                           const HybridTrainer& trainer, const Stream& stream) {
  const OptimizerConfig& optimizer = config.optimizer;
  const std::vector<NamedText> more{
      {"steps", concat(config.training.steps, ", seed ", config.training.seed)},
      {"optimizer", concat(optimizer.name, ", learning rate ", optimizer.learning_rate, ", ",
                           config.schedule.name, " schedule, weight decay ", optimizer.weight_decay,
                           ", clip ", optimizer.clip_norm, groups_text(optimizer))},
      {"phases", phases_line(config.phases) + finder_text(config.learning_rate_finder)},
      {"precision", precision_line(trainer)},
      {"device", device_line(stream)},
      {"machine",
       concat(processor_info().name, ", ", threads(), " threads, ", name_of(instruction_set()))},
  };
  rows.insert(rows.end(), more.begin(), more.end());
  std::string text;
  for (const auto& [name, value] : rows)
    text += concat("  ", name, std::string(11 - name.size(), ' '), value, "\n");
  return text;
}

}  // namespace hybrid_trainer
