#pragma once

#include "src/optim/optimizer_kinds.h"

namespace hybrid_trainer {

struct OptimizerGroup {
  const OptimizerKind* kind;
  OptimizerConfig config;            // without groups
  std::vector<std::size_t> members;  // parameter indices, ascending
};

/// Assigns each parameter to exactly one group of config.groups or to the rest. Parameters that an
/// optimizer does not support use the optimizer OptimizerKind::rest, with the same settings. Muon
/// supports only linear-map matrices, or all 2-D tensors if the group sets name to muon. Throws
/// ConfigError for an unknown optimizer, for a group that matches nothing (the message suggests the
/// nearest role), and for two groups that match the same parameter.
std::vector<OptimizerGroup> optimizer_groups(
    const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
    std::span<const OptimizerKind> kinds = optimizer_kinds());

/// Returns a group's learning rate divided by `all`'s, which the schedule uses.
inline double rate_factor_of(const OptimizerConfig& group, const OptimizerConfig& all) {
  return group.learning_rate == all.learning_rate ? 1.0 : group.learning_rate / all.learning_rate;
}

/// Several optimizers for disjoint sets of weights, with the same number of steps.
class GroupedOptimizer final : public Optimizer {
 public:
  struct Part {
    std::unique_ptr<Optimizer> optimizer;
    std::vector<std::size_t> members;  // parameter indices
    double rate_factor;                // multiplies the learning rate
  };
  /// `home`: location of the state, shared by all parts.
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
  std::vector<Place> places_;  // indexed by parameter
};

/// Makes the optimizer named config.name. `parameters` must outlive it. Its state is initialized to
/// zero, of MemoryKind::kOptimizerState, in the pool of `home`. If this is not the stream's pool,
/// the state of each parameter is loaded for its update and written back; with config.paged and a
/// budget, the part that fits stays on the device. Transfers overlap with the step only if the
/// stream computes on the CPU. Throws ConfigError (with the nearest name), OutOfMemory.
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
/// Returns each parameter's split unit in elements: if a parameter is split at multiples of its
/// unit, separate updates of the parts are bit-identical to an update of the whole parameter. The
/// unit is the whole parameter if it cannot be split (Muon's matrices, Adafactor), else a multiple
/// of kernels::kDotChunk.
std::vector<std::int64_t> cut_units(const OptimizerConfig& config,
                                    const std::vector<Parameter*>& parameters);
/// Returns the FLOPs of orthogonalization per update, averaged over steps, in the dtype in which
/// the parameters compute on the stream's device.
double update_flops(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
                    const Stream& stream);

}  // namespace hybrid_trainer
