#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"

namespace hybrid_trainer {

/// The optimizer that `config.name` names, over parameters that outlive it. Its state is zero, of
/// MemoryKind::kOptimizerState, from the stream's pool. Throws ConfigError, of an unknown name
/// with the nearest one, and OutOfMemory.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config,
                                          std::vector<Parameter*> parameters, const Stream& stream);

}  // namespace hybrid_trainer
