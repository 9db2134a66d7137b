#include "hybrid_trainer/optim/optimizer.h"

namespace hybrid_trainer {

void Optimizer::step(float learning_rate, float gradient_scale, const Stream& stream) {
  begin_step(stream);
  update_weights(learning_rate, gradient_scale, stream);
  end_step(stream);
}

void Optimizer::update_weights(float learning_rate, float gradient_scale, const Stream& stream) {
  for (std::size_t i = 0; i < weights(); ++i)
    update_weight(i, learning_rate, gradient_scale, stream);
}

}  // namespace hybrid_trainer
