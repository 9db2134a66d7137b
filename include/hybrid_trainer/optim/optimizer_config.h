#pragma once

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Returns the accepted values of OptimizerConfig::name.
const std::vector<std::string>& optimizer_names();
/// Returns the names of the optimizers that support an 8-bit state.
const std::vector<std::string>& optimizer_names_with_8_bits();
/// Returns the names of the optimizers whose pending updates can be predicted.
const std::vector<std::string>& predictable_optimizer_names();

/// Returns the help text of OptimizerConfig::name, with a description of each optimizer.
const char* optimizer_name_help();
/// Returns the condition that an optimizer of the run or of a group reads this key of
/// OptimizerConfig.
KeyNeed optimizer_that_reads(const std::string& key);

/// Settings for a group of weights; missing fields are inherited. JSON list `optimizer.groups`.
struct OptimizerGroupConfig {
  std::string match{};
  std::optional<std::string> name{};
  std::optional<double> learning_rate{};
  std::optional<std::vector<double>> betas{};
  std::optional<double> epsilon{};
  std::optional<double> momentum{};
  std::optional<double> weight_decay{};
  std::optional<std::int64_t> state_bits{};

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"match", self.match,
                "Weights of the group: a role (matrix, embedding, head, vector, expert) or a "
                "pattern of names, such as h.*.attn.*. Each weight may be in only one group."});
    visit(Field{"name", self.name, "See optimizer.name.", Range{}, optimizer_names()});
    visit(Field{"learning_rate", self.learning_rate,
                "Highest learning rate; it follows the schedule.", Range::at_least(0)}
              .on_resume(OnResume::kMayChange));
    visit(Field{"betas", self.betas, "See optimizer.betas.", Range::fraction()});
    visit(Field{"epsilon", self.epsilon, "See optimizer.epsilon.", Range::above(0)});
    visit(Field{"momentum", self.momentum, "See optimizer.momentum.", Range::fraction()});
    visit(
        Field{"weight_decay", self.weight_decay, "See optimizer.weight_decay.", Range::at_least(0)}
            .on_resume(OnResume::kMayChange));
    visit(Field{"state_bits", self.state_bits, "See optimizer.state_bits.", Range::between(8, 32)});
  }
};

/// Optimizer and its settings. JSON group `optimizer`.
struct OptimizerConfig {
  std::string name = "adamw";
  double learning_rate = 1e-3;
  std::vector<double> betas{0.9, 0.99};
  double epsilon = 1e-8;
  double momentum = 0.95;
  double weight_decay = 0.1;
  double clip_norm = 1.0;
  std::int64_t state_bits = 32;
  bool paged = false;
  double slow_momentum = 0;
  std::int64_t slow_momentum_steps = 100;
  std::int64_t orthogonalization_period = 1;
  std::int64_t orthogonalization_blocks = 2;
  std::vector<OptimizerGroupConfig> groups{};

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"name", self.name, optimizer_name_help(), Range{}, optimizer_names()}.essential(
        Question::kSpeed));
    visit(Field{"learning_rate", self.learning_rate,
                "Highest learning rate of the schedule. adamw, adam_mini, adafactor and muon need "
                "about the same rate, lion a third to a tenth of it.",
                Range::at_least(0)}
              .on_resume(OnResume::kMayChange)
              .essential(Question::kSpeed));
    visit(Field{"betas", self.betas,
                "Two decay factors. adamw and adam_mini: of the mean and of the mean square of the "
                "gradients. lion: of the momentum in the update, and of the stored momentum. "
                "adafactor always decays its mean squares by 1 - t^-0.8 in step t.",
                Range::fraction()}
              .needs_any(optimizer_that_reads("betas")));
    visit(Field{"epsilon", self.epsilon, "Epsilon added to the denominator of adamw and adam_mini.",
                Range::above(0)}
              .needs_any(optimizer_that_reads("epsilon")));
    visit(Field{"momentum", self.momentum, "Decay factor of the momentum of sgd and muon.",
                Range::fraction()}
              .needs_any(optimizer_that_reads("momentum")));
    visit(Field{"weight_decay", self.weight_decay,
                "Decoupled weight decay: each step multiplies matrices by 1 - learning_rate * "
                "weight_decay. Biases and norm gains are not decayed.",
                Range::at_least(0)}
              .on_resume(OnResume::kMayChange));
    visit(Field{"clip_norm", self.clip_norm,
                "Maximum global norm of the gradient; longer gradients are scaled down to it. 0 "
                "disables clipping.",
                Range::at_least(0)}
              .on_resume(OnResume::kMayChange));
    visit(Field{"state_bits", self.state_bits,
                "Bits of each moment of adamw and lion: 32, 16 or 8. 16 is bf16 with stochastic "
                "rounding; 8 uses blocks of 256 with one scale each. Parameters with fewer than "
                "4,096 elements, and the momentum of muon's matrices, always have 32 bits.",
                Range::between(8, 32)});
    visit(
        Field{"paged", self.paged,
              "Keep the optimizer state in host memory, or at memory.optimizer_state, and load it "
              "for updates. With memory.device_budget, the part that fits stays on the device."}
            .on_resume(OnResume::kMayChange));
    visit(Field{
        "slow_momentum", self.slow_momentum,
        "Slow Nesterov momentum: weights run ahead by this number of mean updates, averaged over "
        "the last slow_momentum_steps; 0 disables it. The number decreases with the learning rate "
        "and is 0 in the last third of the run. Takes 4 more bytes of state per parameter.",
        Range::at_least(0)});
    visit(Field{"slow_momentum_steps", self.slow_momentum_steps,
                "Time constant, in updates, of the mean that slow_momentum uses.",
                Range::at_least(1)}
              .unless("optimizer.slow_momentum", {"0"}));
    visit(Field{
        "orthogonalization_period", self.orthogonalization_period,
        "Number of steps between two orthogonalizations of whole matrices by muon. In the steps "
        "between, muon orthogonalizes blocks of rows. 1 uses whole matrices in each step.",
        Range::between(1, 1 << 20)}
              .on_resume(OnResume::kMayChange)
              .needs_any(optimizer_that_reads("orthogonalization_period")));
    visit(Field{"orthogonalization_blocks", self.orthogonalization_blocks,
                "Number of blocks into which the shorter side of a matrix is divided. In bf16, "
                "this reduces the cost of a step with blocks by about this factor; in fp32 by "
                "less, since orthogonalizing a whole oblong matrix is cheap there.",
                Range::between(2, 1 << 16)}
              .on_resume(OnResume::kMayChange)
              .needs_any(optimizer_that_reads("orthogonalization_blocks"))
              .needs_any(KeyNeed::of(
                  {"optimizer.orthogonalization_period", "stages[].orthogonalization_period"},
                  {"1"}, "optimizer.orthogonalization_period is 1: whole matrices in each step",
                  KeyTest::Kind::kIsNoneOf)));
    visit(Field{"groups", self.groups, "Groups of weights with different optimizer settings."});
  }

  /// Returns the settings of `group`, with missing fields inherited from this config.
  OptimizerConfig of(const OptimizerGroupConfig& group) const;
  /// Appends the problems that field ranges cannot express, as "path.field: ...".
  void collect_problems(const std::string& path, std::vector<std::string>& problems) const;
};

}  // namespace hybrid_trainer
