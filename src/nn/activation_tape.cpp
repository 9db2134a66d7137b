#include "hybrid_trainer/nn/activation_tape.h"

namespace hybrid_trainer {

void PlainTape::push(Tensor activation, const Stream&) { kept_.push_back(std::move(activation)); }

Tensor PlainTape::pop(const Stream&) {
  require(!kept_.empty(), "activation tape: backward took more than forward saved");
  Tensor last = std::move(kept_.back());
  kept_.pop_back();
  return last;
}

Tensor ForwardOnlyTape::pop(const Stream&) {
  throw Error(ExitCode::kInternal,
              "activation tape: backward was called after a forward-only pass");
}

}  // namespace hybrid_trainer
