#pragma once

#include "src/optim/optimizer_state.h"
#include "src/optim/update_predictor.h"

namespace hybrid_trainer {

/// An optimizer whose state is one moment m per parameter, or nothing.
class MomentumOptimizer : public Optimizer {
 public:
  void begin_step(const Stream& stream) final;
  std::size_t weights() const final { return parameters_.size(); }
  void update_weight(std::size_t index, float learning_rate, float gradient_scale,
                     const Stream& stream) final;
  void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                 const Stream& stream) final;
  void visit_state(const StateVisitor& visit) final;

 protected:
  struct Slot {
    Parameter* parameter;
    Tensor m;       // on the stream's device
    Tensor scales;  // scales of m if it has 8 bits
  };
  MomentumOptimizer(std::vector<Parameter*> parameters, bool keeps_momentum, const StateHome& home,
                    std::int64_t state_bits = 32);
  /// Updates m and the weight with gradient_scale · `gradient`.
  virtual void update(const Slot& slot, const Tensor& gradient, float learning_rate,
                      float gradient_scale, const Stream& stream) = 0;
  /// Implements Optimizer::write_momentum_directions for one parameter; called only with momentum.
  virtual void write_direction(const Tensor& direction, const Slot& slot, float learning_rate,
                               const Stream& stream) = 0;

 private:
  void require_moments() const;
  std::vector<Parameter*> parameters_;
  std::vector<Moment> moments_;  // indexed by parameter, in the primary location
  bool keeps_momentum_;
  StateCopies copies_;
};

/// SGD with heavy-ball momentum and decoupled weight decay. State: m per parameter, or nothing
/// without momentum. Source: Sutskever et al. 2013, section 2 (without a factor on the gradient).
class Sgd final : public MomentumOptimizer {
 public:
  Sgd(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream& stream,
      const StateHome& home);

 private:
  void update(const Slot& slot, const Tensor& gradient, float learning_rate, float gradient_scale,
              const Stream& stream) override;
  void write_direction(const Tensor& direction, const Slot& slot, float learning_rate,
                       const Stream& stream) override;
  const float momentum_;
  const double weight_decay_;
};

/// Lion: the update of each element is the learning rate, with the sign of a mean of momentum and
/// gradient. Weight decay is decoupled. Requires a learning rate 3 to 10 times lower than AdamW,
/// and a weight decay that is higher by the same factor. State: m per parameter (see Moment).
/// Source: Chen et al. 2023, "Symbolic discovery of optimization algorithms", algorithm 2.
class Lion final : public MomentumOptimizer {
 public:
  Lion(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream& stream,
       const StateHome& home);

 private:
  void update(const Slot& slot, const Tensor& gradient, float learning_rate, float gradient_scale,
              const Stream& stream) override;
  void write_direction(const Tensor& direction, const Slot& slot, float learning_rate,
                       const Stream& stream) override;
  const float beta1_, beta2_;
  const double weight_decay_;
};

std::unique_ptr<UpdatePredictor> make_lion_predictor(const PredictedUpdates& updates);

}  // namespace hybrid_trainer
