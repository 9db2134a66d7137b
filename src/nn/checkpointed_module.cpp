#include "hybrid_trainer/nn/checkpointed_module.h"

#include <algorithm>

namespace hybrid_trainer {

Tensor CheckpointedModule::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  ForwardOnlyTape none(tape.pass());
  Tensor y = module_.forward(x, none, stream);
  tape.save({ActivationRole::kBlockInput, x}, stream);
  return y;
}

Tensor CheckpointedModule::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor x = tape.take(stream);
  // What every pass rebuilds may differ in its last bits, norms do not.
  PlainTape inner(tape.pass(), std::max(tape.rebuild(), Rebuild::kNormalized));
  module_.forward(x, inner, stream);
  return module_.backward(dy, inner, stream);
}

}  // namespace hybrid_trainer
