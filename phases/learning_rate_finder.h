#pragma once

#include "hybrid_trainer/phases/phase_machine.h"

namespace hybrid_trainer {

/// Raises a learning rate that is too low. After every `interval` = k updates, moves the weights
/// further along the mean of these updates, by 1, 2, 4, … times its length, as long as the loss
/// decreases. If the lowest loss is at α times the length, multiplies the rate by
/// min(largest_factor, 1 + α/k); α = 0 does not change it. Restores the weights bit for bit.
///
/// Limitations: it never lowers the rate, searches along one line, and ignores a later decay.
class LearningRateFinder {
 public:
  struct Setup {
    LearningRateFinderConfig config;
    std::int64_t ramp_steps = 0;  // number of steps in which the schedule's rate rises
    double forward_cost = 0.35;   // cost of the forward pass of a whole batch, in Full steps
  };
  explicit LearningRateFinder(Setup setup) : setup_(std::move(setup)) {}

  /// Probes, using the step's batch, if a probe is due. Call it before each step of Warmup. If
  /// memory is too short for a probe, there are no further probes.
  void begin_step(Trainable& model, const Batch& batch, std::int64_t steps_done,
                  PhaseOutcome& outcome);
  void add_updates(std::int64_t updates) { updates_ += updates; }
  /// Ends the search after Warmup. Warns if probes were still raising the rate.
  void leave_warmup(PhaseOutcome& outcome);
  bool is_on() const { return setup_.config.is_on(); }
  double factor() const { return factor_; }

  void save(State& state) const;
  void load(const State& state, Trainable& model);

 private:
  struct Lowest {
    double position = 0;  // α, in updates
    std::int64_t forwards = 0;
  };
  void start_window(Trainable& model);
  void probe(Trainable& model, const Batch& batch, PhaseOutcome& outcome);
  Lowest search(Trainable& model, const Batch& batch, std::int64_t examples) const;
  double raise_of(double position) const;
  void judge(double position, PhaseOutcome& outcome);
  template <class Self, class Visit>
  static void visit_state(Self& self, const Visit& visit);

  Setup setup_;
  double factor_ = 1;
  std::int64_t updates_ = 0;  // number of updates since the window began
  std::int64_t probes_ = 0, refused_in_a_row_ = 0;
  bool ended_ = false;
  /// Weights at the start of the window; during a probe, their change since then.
  std::vector<Tensor> window_;
};

}  // namespace hybrid_trainer
