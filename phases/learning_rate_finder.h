#pragma once

#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/phase_machine.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

/// Raises a learning rate that is too low. After every `interval` = k updates, it moves the weights
/// further along their mean, by 1, 2, 4, … times its length, and measures the loss until it is not
/// lower than the previous one. If the lowest loss is at α times the length, the rate is multiplied
/// by min(largest_factor, 1 + α/k); at α = 0 it stays. Weights are restored bit for bit.
///
/// Limits: it only raises the rate, so an increase due to noise stays. It searches only one line.
/// It ignores that a decaying schedule would allow a larger rate now.
class LearningRateFinder {
 public:
  struct Setup {
    LearningRateFinderConfig config;
    std::int64_t ramp_steps = 0;  // first steps of the run, while the schedule's rate rises
    double forward_cost = 0.35;   // of a whole batch, in Full steps
  };
  explicit LearningRateFinder(Setup setup) : setup_(std::move(setup)) {}

  /// Must be called before each step of Warmup. If a probe is due, it uses the step's batch. If
  /// memory is too short for a probe, there are no further ones.
  void begin_step(Trainable& model, const Batch& batch, std::int64_t steps_done,
                  PhaseOutcome& outcome);
  void add_updates(std::int64_t updates) { updates_ += updates; }
  /// Ends finding after Warmup; warns if probes were still raising the rate.
  void leave_warmup(PhaseOutcome& outcome);
  bool is_on() const { return setup_.config.is_on(); }
  /// Returns the factor for the schedule's learning rate.
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
  std::int64_t updates_ = 0;  // since the window began
  std::int64_t probes_ = 0, refused_in_a_row_ = 0;
  bool ended_ = false;
  /// Weights at the start of the window; during a probe, their change since.
  std::vector<Tensor> window_;
};

}  // namespace hybrid_trainer
