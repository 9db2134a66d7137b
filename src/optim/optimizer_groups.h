#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "state_pages.h"

namespace hybrid_trainer {

/// Weights that one optimizer updates.
struct OptimizerGroup {
  OptimizerConfig config;            // without groups
  std::vector<std::size_t> members;  // indices of the parameters, in their order
};

/// Each parameter in exactly one group: those of config.groups, and the rest. What muon does not
/// take (all but matrices; of a group that names it, all but tensors of two dimensions) is adamw's,
/// with the same settings. Throws ConfigError for a group that matches nothing, with the nearest
/// role, and for two that match one parameter.
std::vector<OptimizerGroup> optimizer_groups(const OptimizerConfig& config,
                                             const std::vector<Parameter*>& parameters);

/// Several optimizers, each for weights of its own, as one. All have taken the same steps.
class GroupedOptimizer final : public Optimizer {
 public:
  struct Part {
    std::unique_ptr<Optimizer> optimizer;
    std::vector<std::size_t> members;  // indices of its parameters among all
    double rate_factor;                // of the learning rate that is given
  };
  /// `pages`: those of all parts, if any.
  GroupedOptimizer(std::vector<Parameter*> parameters, std::vector<Part> parts,
                   std::shared_ptr<StatePages> pages)
      : parameters_(std::move(parameters)), parts_(std::move(parts)), pages_(std::move(pages)) {}
  void step(float learning_rate, float gradient_scale, const Stream& stream) override;
  void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                 const Stream& stream) override;
  void visit_state(const StateVisitor& visit) override;
  void set_steps_taken(std::int64_t steps) override;
  bool leave_device(const Stream& stream) override;

 private:
  std::vector<Parameter*> parameters_;
  std::vector<Part> parts_;
  std::shared_ptr<StatePages> pages_;
};

}  // namespace hybrid_trainer
