#include "phases/asynchronous_gradients/asynchronous_gradients.h"
#include "phases/method_refusals.h"

namespace hybrid_trainer {

const std::vector<Refusal>& AsynchronousGradientsMethod::refusals() {
  static const std::vector<Refusal> rows = [] {
    std::vector<Refusal> all = refusals_ahead_of_ranks();
    all.push_back({{"distributed.zero"},
                   Kind::kIsOneOf,
                   {"0", "1"},
                   "a rank's own gradient and the weights are whole"});
    all.push_back({{"phases.asynchronous_gradients.device_side"},
                   Kind::kIsOneOf,
                   {"anticipated", "shared", "momentum", "none"},
                   "the others are for phases.method asynchronous_optimizer"});
    return all;
  }();
  return rows;
}

}  // namespace hybrid_trainer
