#pragma once

#include <cstdint>
#include <functional>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/nn/expert_mixture.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/observability/step_record.h"
#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// Copies of the routers from the start of Predict. Predict's forward passes use them to count the
/// tokens that the changed routers send to other experts.
class RouterCopies {
 public:
  /// Both must outlive this object.
  RouterCopies(LossModel& model, const Stream& stream) : model_(model), stream_(stream) {}
  /// Copies the routers at the start of Predict, unless load has found copies.
  void take();
  void drop();
  void save(State& state) const;
  void load(const State& state);

 private:
  LossModel& model_;
  const Stream& stream_;
};

/// Balances experts without an additional loss, by adjusting the routers' selection biases. Uses
/// the counts of backward passes since ExpertWatch last read them. Collective, unless `ranks` is
/// null. Source: Wang et al. 2024, "Auxiliary-loss-free load balancing", arXiv 2408.15664.
void move_selection_biases(LossModel& model, Communicator* ranks, const Stream& stream);
/// Saves views of the biases.
void save_selection_biases(LossModel& model, State& state);
/// Throws DataError if the state has no biases.
void load_selection_biases(LossModel& model, const State& state, const Stream& stream);

/// Reads the counts of a model's routers after each step, and warns of experts without tokens.
class ExpertWatch {
 public:
  using MessageCallback = std::function<void(const std::string&)>;
  /// Replaces sums of one rank by sums over all ranks; empty for one rank.
  using Total = std::function<void(std::vector<double>& sums)>;
  explicit ExpertWatch(MessageCallback warn) : warn_(std::move(warn)) {}
  /// Reads and clears the routers' counts since the last call, if any. Collective if `total` is.
  ExpertLoads read(LossModel& model, const Stream& stream, const Total& total = {});
  /// Returns the share of (token, expert) pairs that differ between the current routers and their
  /// copies from the start of Predict, and clears the counts; absent if no router counts them.
  /// Collective if `total` is.
  static std::optional<double> read_flips(LossModel& model, const Stream& stream,
                                          const Total& total = {});

 private:
  void add_layer(ExpertLoads& loads, const RoutingCount& count, const double* sums,
                 std::size_t layer);
  void warn_of_dead(const ExpertLoads& loads);
  MessageCallback warn_;
  std::vector<std::vector<std::int64_t>> idle_;  // steps without a token, by layer and expert
  std::int64_t reported_dead_ = 0;               // dead experts already reported
};

}  // namespace hybrid_trainer
