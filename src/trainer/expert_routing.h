#pragma once

#include <cstdint>
#include <functional>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/nn/expert_mixture.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/observability/step_record.h"
#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// The routers as they were when Predict began, by which its forward passes count the tokens that the
/// change of the weights sends elsewhere.
class RouterCopies {
 public:
  /// Both must outlive it.
  RouterCopies(LossModel& model, const Stream& stream) : model_(model), stream_(stream) {}
  /// Predict begins, or goes on where load found copies.
  void take();
  void drop();
  void save(State& state) const;
  void load(const State& state);

 private:
  LossModel& model_;
  const Stream& stream_;
};

/// Moves the biases by which routers choose experts, so that loads become even without a loss. Source:
/// Wang et al. 2024, "Auxiliary-loss-free load balancing", arXiv 2408.15664. `ranks` may be null; a
/// collective otherwise. Of what backward passes have counted and ExpertWatch has not read.
void move_selection_biases(LossModel& model, Communicator* ranks, const Stream& stream);
/// As views, beside the weights.
void save_selection_biases(LossModel& model, State& state);
/// Throws DataError where the state is of a model without them.
void load_selection_biases(LossModel& model, const State& state, const Stream& stream);

/// Reads after each step what a model's routers have counted, and tells of experts that get nothing.
class ExpertWatch {
 public:
  using Tell = std::function<void(const std::string&)>;
  /// Replaces sums of one rank by those of all ranks; empty for one rank.
  using Total = std::function<void(std::vector<double>& sums)>;
  explicit ExpertWatch(Tell warn) : warn_(std::move(warn)) {}
  /// Reads and clears what routers have counted since the last call. Empty if the model has no routers,
  /// or they counted nothing. A collective if `total` is one.
  ExpertLoads read(LossModel& model, const Stream& stream, const Total& total = {});
  /// Reads and clears the share of the pairs of a token and its expert that exists only because the
  /// routers have changed since Predict began; absent if no router counts it. A collective likewise.
  static std::optional<double> read_flips(LossModel& model, const Stream& stream,
                                          const Total& total = {});

 private:
  void add_layer(ExpertLoads& loads, const RoutingCount& count, const double* sums,
                 std::size_t layer);
  void warn_of_dead(const ExpertLoads& loads);
  Tell warn_;
  std::vector<std::vector<std::int64_t>> idle_;  // steps without a token, by layer and expert
  std::int64_t told_ = 0;                        // dead experts that were told of
};

}  // namespace hybrid_trainer
