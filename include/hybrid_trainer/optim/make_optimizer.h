#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "hybrid_trainer/core/prefetcher.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"

namespace hybrid_trainer {

/// The optimizer that `config.name` names, over parameters that outlive it. Its state is zero, of
/// MemoryKind::kOptimizerState, from the pool of `home`; where that is not the stream's, each
/// parameter's state comes to the stream's device for its update, and goes back after it; with
/// config.paged and a budget as much of it stays as fits. Beside the step it comes and goes only
/// where the stream computes on the processor. Throws ConfigError, of an unknown name with the
/// nearest one, and OutOfMemory.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config,
                                          std::vector<Parameter*> parameters, const Stream& stream,
                                          const Stream& home,
                                          std::optional<std::size_t> device_budget = {},
                                          Copies copies = Copies::kInStream);
inline std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config,
                                                 std::vector<Parameter*> parameters,
                                                 const Stream& stream) {
  return make_optimizer(config, std::move(parameters), stream, stream);
}
/// Elements at whose multiples each parameter may be cut into parts that are updated apart, with the
/// bits of an update of the whole; as many as it has where it is updated whole or not at all (Muon's
/// matrices, Adafactor). Multiples of kernels::kDotChunk otherwise.
std::vector<std::int64_t> cut_units(const OptimizerConfig& config,
                                    const std::vector<Parameter*>& parameters);
/// Operations of the products in one update on the stream's device in the dtype that the parameters
/// compute in, on average over steps: those that orthogonalize.
double update_flops(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
                    const Stream& stream);

}  // namespace hybrid_trainer
