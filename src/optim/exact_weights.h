#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/optim/speculative_optimizer.h"
#include "src/optim/exact_weight.h"
#include "src/optim/given_gradients.h"

namespace hybrid_trainer {

/// The exact weights of a SpeculativeOptimizer and the state of its exact optimizer. They lie on the
/// host, or in a file, from which a weight at a time is brought to the host.
class ExactWeights {
 public:
  /// Gives each parameter LiveWeight storage. Throws ConfigError, OutOfMemory.
  ExactWeights(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
               const SpeculationSettings& settings, const Stream& device,
               const std::shared_ptr<MemoryPool>& host, const Stream& home);

  const Stream& host() const { return host_; }
  bool are_on_host() const { return prefetcher_ == nullptr; }
  Optimizer& optimizer() const { return *optimizer_; }
  std::vector<ExactWeight>& all() { return weights_; }
  const std::vector<ExactWeight>& all() const { return weights_; }
  /// Those that a parameter consists of.
  std::span<ExactWeight> of_parameter(std::size_t index) {
    return std::span(weights_).subspan(first_piece_[index],
                                       first_piece_[index + 1] - first_piece_[index]);
  }
  std::size_t index_of(const ExactWeight& weight) const {
    return static_cast<std::size_t>(&weight - weights_.data());
  }
  /// State of a parameter that is in pieces is visited as a whole.
  void visit_state(const Optimizer::StateVisitor& visit);

  /// Around the exact updates of a step.
  void begin_step();
  void end_step();
  AtHand at_hand(ExactWeight& weight) { return AtHand(weight, prefetcher_.get(), host_); }
  /// The exact update of a weight that is at hand.
  void update(const ExactWeight& weight, const Tensor& gradient, float learning_rate,
              float gradient_scale);
  /// body(weight, at hand) for each weight; while one is used, the last is written and the next read.
  template <class Body>
  void for_each_at_hand(const Body& body) {
    if (prefetcher_) prefetcher_->begin_pass();
    for (ExactWeight& weight : weights_) {
      const MemoryLabel label(weight.parameter->name());
      body(weight, at_hand(weight));
    }
    if (prefetcher_) prefetcher_->settle();
  }
  /// The same as one step of exact updates.
  template <class Body>
  void update_each(const Body& body) {
    optimizer_->begin_step(host_);
    for_each_at_hand(body);
    optimizer_->end_step(host_);
  }

 private:
  void add_weights(const std::vector<Parameter*>& parameters, const OptimizerConfig& config,
                   const SpeculationSettings& settings, const Stream& device, const Stream& home);
  void place_state(const Stream& home);

  Stream host_;                             // the worker's
  std::unique_ptr<Prefetcher> prefetcher_;  // of what does not lie on the host
  std::vector<ExactWeight> weights_;
  std::vector<std::size_t> first_piece_;  // of each parameter, and the end
  GivenGradients given_;                  // to the optimizer
  std::unique_ptr<Optimizer> optimizer_;
  /// Of tensors of the optimizer that are parts, the first of each: the whole.
  struct WholeState {
    StateLabel label;
    Tensor tensor;
  };
  std::unordered_map<const Tensor*, WholeState> whole_state_;
};

}  // namespace hybrid_trainer
