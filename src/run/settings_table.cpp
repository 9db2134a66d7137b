#include "src/run/settings_table.h"

#include <algorithm>
#include <cstdio>

#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/trainer/stretches.h"

namespace hybrid_trainer {
namespace {

/// "1.24 M", a small number as it is.
std::string millions(std::int64_t count) {
  if (count < 10'000) return std::to_string(count);
  char text[32];
  std::snprintf(text, sizeof text, "%.2f M", static_cast<double>(count) / 1e6);
  return text;
}

std::string model_line(const ModelFamily& family, const ModelConfig& model,
                       std::int64_t parameters) {
  const bool has_heads =
      std::find(family.keys.begin(), family.keys.end(), "heads") != family.keys.end();
  return concat(family.title, ", ", millions(parameters), " parameters: ", model.layers,
                " layers, ", has_heads ? concat(model.heads, " heads, ") : "", "width ",
                model.width, ", context ", model.context, ", vocabulary ", model.vocabulary,
                model.dropout > 0 ? concat(", dropout ", model.dropout) : "");
}

/// "lora of rank 8, alpha 16, on q_proj,v_proj: 0.30 M weights are trained beside frozen ones in nf4".
std::string adapters_line(const LoraConfig& lora, LanguageModel& model) {
  if (!lora.is_on()) return "none";
  std::int64_t trained = 0;
  for (const Parameter* parameter : trainable_parameters(model)) trained += parameter->elements();
  return concat(lora.variant, " of rank ", lora.rank, ", alpha ", lora.alpha, ", on ", lora.targets,
                ": ", millions(trained), " weights are trained beside frozen ones in ", lora.base);
}

/// "; embedding by sgd, *.bias by adamw".
std::string groups_text(const OptimizerConfig& optimizer) {
  std::vector<std::string> texts;
  for (const OptimizerGroupConfig& group : optimizer.groups) {
    const OptimizerConfig own = optimizer.of(group);
    texts.push_back(concat(group.match, " by ", own.name, " at ", own.learning_rate));
  }
  return texts.empty() ? "" : "; " + join(texts);
}

std::string batch_line(const HybridTrainerConfig& config) {
  const std::int64_t parts = config.gradient_accumulation.micro_batches;
  const std::int64_t effective = config.data.batch_size * parts;
  std::string before;
  const std::vector<Stretch> stretches = Stretches(config).all();
  for (std::size_t i = 0; i + 1 < stretches.size(); ++i)
    before += concat(text_of(stretches[i]), " until step ", stretches[i + 1].first_step, ", then ");
  return concat(
      before, effective, " sequences of ", config.data.sequence_length, " tokens a step",
      parts > 1 ? concat(" (", parts, " micro-batches of ", config.data.batch_size, ")") : "");
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
                  " steps, what others did ", phases.lag, phases.lag == 1 ? " step" : " steps",
                  " late", exchange_text(phases));
  }
  if (phases.lacks_other_ranks()) {
    return concat(common, " with other ranks' gradients ", phases.lag,
                  phases.lag == 1 ? " step" : " steps", " late, until then ", phases.device_side);
  }
  if (!phases.predicts_backward()) {
    return concat(common, " with updates ", phases.lag, phases.lag == 1 ? " step" : " steps",
                  " late, on the device ", phases.device_side, ", exact state in ",
                  phases.exact_state == "host" ? "host memory" : "a file");
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

std::string settings_table(const HybridTrainerConfig& config, const ModelFamily& family,
                           LanguageModel& model, const HybridTrainer& trainer,
                           std::int64_t train_tokens, const std::string& data,
                           const Stream& stream) {
  const OptimizerConfig& optimizer = config.optimizer;
  const std::vector<std::pair<const char*, std::string>> rows{
      {"model", model_line(family, config.model, model.parameter_count())},
      {"adapters", adapters_line(config.lora, model)},
      {"data", concat(data, ", ", millions(train_tokens), " training tokens")},
      {"batch", batch_line(config)},
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
  std::string text;
  for (const auto& [name, value] : rows) {
    text += concat("  ", name, std::string(11 - std::string_view(name).size(), ' '), value, "\n");
  }
  return text;
}

}  // namespace hybrid_trainer
