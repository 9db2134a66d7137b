#include "src/run/language_settings.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/memory/quantized_weight.h"
#include "src/config/stretches.h"

namespace hybrid_trainer {
namespace {

std::string model_line(const ModelFamily& family, const ModelConfig& model,
                       std::int64_t parameters) {
  const bool has_heads =
      std::find(family.keys.begin(), family.keys.end(), "heads") != family.keys.end();
  return concat(family.title, ", ", units::millions(parameters), " parameters: ", model.layers,
                " layers, ", has_heads ? concat(model.heads, " heads, ") : "", "width ",
                model.width, ", context ", model.context, ", vocabulary ", model.vocabulary,
                model.dropout > 0 ? concat(", dropout ", model.dropout) : "");
}

/// How much of the matrices a file's blocks hold.
std::string blocks_text(LossModel& model) {
  double all = 0, in_blocks = 0;
  model.visit_parameters([&](Parameter& parameter) {
    if (parameter.trainable() || parameter.role() == Role::kVector) return;
    const auto elements = static_cast<double>(parameter.elements());
    all += elements;
    in_blocks += dynamic_cast<QuantizedWeight*>(&parameter.storage()) != nullptr ? elements : 0;
  });
  if (in_blocks == all) return "the file's own blocks";
  return concat("the file's own blocks, ", std::llround(100 * (1 - in_blocks / all)),
                " % of them in f32, since the file has no blocks for these");
}

/// "lora of rank 8, alpha 16, on q_proj,v_proj: 0.30 M weights are trained beside frozen ones in nf4".
std::string adapters_line(const LoraConfig& lora, bool has_parts, LossModel& model) {
  if (!lora.is_on()) return has_parts ? "of parts, see below" : "none";
  std::int64_t trained = 0;
  for (const Parameter* parameter : trainable_parameters(model)) trained += parameter->elements();
  return concat(lora.variant, " of rank ", lora.rank, ", alpha ", lora.alpha, ", on ", lora.targets,
                ": ", units::millions(trained), " weights are trained beside frozen ones in ",
                lora.base == kFileBase ? blocks_text(model) : lora.base);
}

std::string batch_line(const HybridTrainerConfig& config) {
  const std::int64_t parts = config.gradient_accumulation.micro_batches;
  std::string before;
  const std::vector<Stretch> stretches = Stretches(config).all();
  for (std::size_t i = 0; i + 1 < stretches.size(); ++i)
    before += concat(text_of(stretches[i]), " until step ", stretches[i + 1].first_step, ", then ");
  return concat(
      before, config.effective_batch(), " sequences of ", config.data.sequence_length,
      " tokens a step",
      parts > 1 ? concat(" (", parts, " micro-batches of ", config.data.batch_size, ")") : "");
}

/// "masked: the loss is of 10 of 64 tokens".
std::string objective_line(const HybridTrainerConfig& config) {
  if (config.prefers())
    return concat(config.objective, ": the loss is of pairs of answers, beta ",
                  brief(config.preference_beta));
  const std::int64_t length = config.data.sequence_length;
  return concat("masked: the loss is of ", masked_tokens(config.mask_share, length), " of the ",
                length, " tokens of a sequence, which both sides tell");
}

}  // namespace

std::vector<NamedText> language_settings(const HybridTrainerConfig& config,
                                         const ModelFamily& family, const std::string& data,
                                         LossModel& model) {
  std::vector<NamedText> settings{
      {"model", model_line(family, config.model, model.parameter_count())},
      {"adapters", adapters_line(config.lora, config.has_adapters(), model)},
      {"data", data},
      {"batch", batch_line(config)}};
  if (config.masks() || config.prefers())
    settings.emplace_back("objective", objective_line(config));
  return settings;
}

}  // namespace hybrid_trainer
