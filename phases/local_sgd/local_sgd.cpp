#include "phases/local_sgd/local_sgd.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

std::string LocalSgdMethod::text(const PhaseConfig& config) {
  const LocalSgdConfig& group = config.local_sgd;
  std::string sent;
  if (group.fragments > 1) sent += concat(" in ", group.fragments, " fragments");
  if (group.exchange_bits < 32) sent += concat(" by ", group.exchange_bits, " bits a weight");
  return concat(", each rank by itself for ", group.steps, " steps (local SGD), exchanges ",
                group.delay, group.delay == 1 ? " step" : " steps", " late",
                sent.empty() ? "" : "; sent" + sent);
}

}  // namespace hybrid_trainer
