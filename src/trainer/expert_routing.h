#pragma once

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/observability/step_record.h"
#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// Copies of the routers at the start of Predict. Forward passes of Predict use them to count how
/// many tokens the changed routers send to other experts.
class RouterCopies {
 public:
  RouterCopies(LossModel& model, const Stream& stream) : model_(model), stream_(stream) {}
  void take();  // unless `load` has loaded copies
  void drop();
  void save(State& state) const;
  void load(const State& state);

 private:
  LossModel& model_;
  const Stream& stream_;
};

/// Balances experts without an additional loss, by adjusting the routers' selection biases. Uses
/// the counts since the last ExpertWatch::read. Collective, unless `ranks` is null. Source: Wang et
/// al. 2024, "Auxiliary-loss-free load balancing", arXiv 2408.15664.
void move_selection_biases(LossModel& model, Communicator* ranks, const Stream& stream);
void save_selection_biases(LossModel& model, State& state);
/// Loads the selection biases. Throws DataError if the state does not contain them.
void load_selection_biases(LossModel& model, const State& state, const Stream& stream);

/// Reads the counts of a model's routers after each step, and warns of experts without tokens.
class ExpertWatch {
 public:
  using MessageCallback = std::function<void(const std::string&)>;
  /// Function that replaces sums of one rank by sums over all ranks. Empty for a single rank.
  using Total = std::function<void(std::vector<double>& sums)>;
  explicit ExpertWatch(MessageCallback warn) : warn_(std::move(warn)) {}
  /// Reads and clears the routers' counts since the last call, if any. Collective if `total` is.
  ExpertLoads read(LossModel& model, const Stream& stream, const Total& total = {});
  /// Returns the share of (token, expert) pairs that the current routers route differently than
  /// their copies, and clears the counts; absent if there are none. Collective if `total` is.
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
