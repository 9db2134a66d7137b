#include "hybrid_trainer/models/model_config.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {
namespace {

/// The positions of the first training are the folder's, unless it knows of fewer.
void take_positions(ModelConfig& model, const ModelConfig& asked,
                    const std::vector<std::string>& keys) {
  const auto is_set = [&](const std::string& key) {
    return std::ranges::any_of(
        keys, [&](const std::string& set) { return set == key || set.starts_with(key + "."); });
  };
  constexpr const char *kContext = "model.context", *kScaling = "model.rope_scaling";
  if (!is_set(kContext) && !is_set(kScaling)) return;
  if (std::ranges::count(find_family(model.family).keys, "rope_scaling") == 0)
    throw ConfigError({concat(is_set(kContext) ? kContext : kScaling, ": the positions of a ",
                              model.family, " model are no rotary angles, so its context stays ",
                              model.context, "; leave it out")});
  if (is_set(kScaling)) model.rope_scaling = asked.rope_scaling;
  if (model.rope_scaling.original_context == 0 && model.rope_scaling.type != "default" &&
      model.rope_scaling.type != "linear")
    model.rope_scaling.original_context = model.context;
  if (is_set(kContext)) model.context = asked.context;
}

}  // namespace

ModelConfig with_training_of(ModelConfig model, const ModelConfig& asked,
                             const std::vector<std::string>& keys) {
  const bool is_of_same = asked.family == model.family;  // else its zeros say nothing
  const auto take = [&](double& here, double there) {
    if (is_of_same || there > 0) here = there;
  };
  model.dropout = asked.dropout;
  model.encoder.source_length = asked.encoder.source_length;
  take(model.experts.balance_loss, asked.experts.balance_loss);
  take(model.experts.z_loss, asked.experts.z_loss);
  take(model.experts.bias_rate, asked.experts.bias_rate);
  if (is_of_same || asked.attention_pattern.is_on())
    model.attention_pattern = asked.attention_pattern;
  take_positions(model, asked, keys);
  return model;
}

}  // namespace hybrid_trainer
