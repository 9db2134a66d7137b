#include "src/trainer/settings_table.h"

#include "src/core/cuda_runtime.h"
#include "src/core/machine.h"
#include "src/core/messages.h"
#include "src/files/config_fields.h"

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

/// "video.*: recompute 1; fusion.*: lora 16, base nf4".
std::string parts_line(const HybridTrainerConfig& config) {
  const FieldNode tree = field_tree(config);
  std::vector<std::string> parts;
  for (const FieldNode& part : field_at(tree, "parts")->elements) {
    std::vector<std::string> keys;
    for (const FieldNode& key : part.fields)
      if (!key.left_out) keys.push_back(concat(key.name, " ", field_text(key)));
    parts.push_back(concat(part.name, ": ", join(keys)));
  }
  return join(parts, "; ");
}

std::string phases_line(const PhaseConfig& phases) {
  if (phases.max_predict_steps == 0) return "plain training (phases.max_predict_steps is 0)";
  return concat("warmup ", phases.warmup_steps, ", full ", phases.full_steps, ", predict up to ",
                phases.max_predict_steps, phases.predict_text());
}

std::string finder_text(const LearningRateFinderConfig& finder) {
  if (!finder.is_on()) return "";
  return concat("; warmup probes every ", finder.interval,
                " updates whether the learning rate is too low");
}

/// Of the phases that the run comes into.
std::string precision_line(const HybridTrainer& trainer, bool predicts) {
  std::string text;
  for (Phase phase : kAllPhases) {
    if (!predicts && (phase == Phase::kPredict || phase == Phase::kCorrect)) continue;
    const char* const name = precision_name(trainer.precision().of(phase));
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

std::string settings_table(std::vector<std::pair<std::string, std::string>> rows,
                           const HybridTrainerConfig& config, const HybridTrainer& trainer,
                           const Stream& stream) {
  const OptimizerConfig& optimizer = config.optimizer;
  const std::vector<std::pair<std::string, std::string>> more{
      {"steps", concat(config.training.steps, ", seed ", config.training.seed)},
      {"optimizer", concat(optimizer.name, ", learning rate ", optimizer.learning_rate, ", ",
                           config.schedule.name, " schedule, weight decay ", optimizer.weight_decay,
                           ", clip ", optimizer.clip_norm, groups_text(optimizer))},
      {"phases", phases_line(config.phases) + finder_text(config.learning_rate_finder)},
      {"precision", precision_line(trainer, config.phases.max_predict_steps > 0)},
      {"device", device_line(stream)},
      {"machine",
       concat(processor_info().name, ", ", threads(), " threads, ", name_of(instruction_set()))},
  };
  if (!config.parts.empty()) rows.emplace_back("parts", parts_line(config));
  rows.insert(rows.end(), more.begin(), more.end());
  std::string text;
  for (const auto& [name, value] : rows)
    text += concat("  ", name, std::string(11 - name.size(), ' '), value, "\n");
  return text;
}

}  // namespace hybrid_trainer
