#pragma once

#include <cstddef>

#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/core/prefetcher.h"
#include "src/optim/optimizer_kinds.h"

namespace hybrid_trainer {

/// Weights that one optimizer updates.
struct OptimizerGroup {
  const OptimizerKind* kind;
  OptimizerConfig config;            // without groups
  std::vector<std::size_t> members;  // indices of the parameters, in their order
};

/// Each parameter in exactly one group: those of config.groups, and the rest. What the optimizer does
/// not take, as muon all but matrices (of a group that names it, all but tensors of two dimensions),
/// is that of its kind's `rest`, with the same settings. Throws ConfigError for an unknown optimizer, for a group that matches nothing, with the nearest
/// role, and for two that match one parameter.
std::vector<OptimizerGroup> optimizer_groups(
    const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
    std::span<const OptimizerKind> kinds = optimizer_kinds());

/// What the schedule's learning rate is multiplied by for a group of the optimizer `all`.
inline double rate_factor_of(const OptimizerConfig& group, const OptimizerConfig& all) {
  return group.learning_rate == all.learning_rate ? 1.0 : group.learning_rate / all.learning_rate;
}

/// Several optimizers, each for weights of its own, as one. All have taken the same steps.
class GroupedOptimizer final : public Optimizer {
 public:
  struct Part {
    std::unique_ptr<Optimizer> optimizer;
    std::vector<std::size_t> members;  // indices of its parameters among all
    double rate_factor;                // of the learning rate that is given
  };
  /// `home`: that of all parts.
  GroupedOptimizer(std::vector<Parameter*> parameters, std::vector<Part> parts,
                   const StateHome& home);
  void begin_step(const Stream& stream) override;
  std::size_t weights() const override { return parameters_.size(); }
  void update_weight(std::size_t index, float learning_rate, float gradient_scale,
                     const Stream& stream) override;
  void update_weights(float learning_rate, float gradient_scale, const Stream& stream) override;
  void end_step(const Stream& stream) override;
  void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                 const Stream& stream) override;
  void visit_state(const StateVisitor& visit) override;
  void set_steps_taken(std::int64_t steps) override;
  void set_orthogonalization_period(std::int64_t steps) override;
  bool leave_device(const Stream& stream) override;

 private:
  std::vector<Parameter*> parameters_;
  std::vector<Part> parts_;
  StateCopies copies_;
  struct Place {
    const Part* part;
    std::size_t member;
  };
  std::vector<Place> places_;  // of each parameter
};

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
