#include "hybrid_trainer/models/model_config.h"

namespace hybrid_trainer {

ModelConfig with_training_of(ModelConfig model, const ModelConfig& asked) {
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
  return model;
}

}  // namespace hybrid_trainer
