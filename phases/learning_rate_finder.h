#pragma once

#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/phase_machine.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

/// Raises a learning rate that is too low: after every `interval` = k updates, losses are taken
/// further along the mean of those updates, at 1, 2, 4, … of its lengths, until one is not lower
/// than the one before. Where it is lowest at α, the rate is multiplied by
/// min(largest_factor, 1 + α/k); α = 0 refuses. The weights come back bit for bit.
///
/// It can only raise, and looks no further than one line: noise that says "further" is never taken
/// back, and a rate that a decaying schedule will bring down later may be larger than what it
/// finds.
class LearningRateFinder {
 public:
  struct Setup {
    LearningRateFinderConfig config;
    std::int64_t ramp_steps = 0;  // first steps of the run, in which the schedule's rate rises
    double forward_cost = 0.35;   // of a whole batch, in Full steps
  };
  explicit LearningRateFinder(Setup setup) : setup_(std::move(setup)) {}

  /// To be called before each step of Warmup: probes on the step's batch where that is due. Where
  /// memory does not hold what a probe takes, finding ends.
  void begin_step(Trainable& model, const Batch& batch, std::int64_t steps_done,
                  PhaseOutcome& outcome);
  void add_updates(std::int64_t updates) { updates_ += updates; }
  /// Warmup is over; says so where probes still raised the rate.
  void leave_warmup(PhaseOutcome& outcome);
  bool is_on() const { return setup_.config.is_on(); }
  /// Of the schedule's learning rate.
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
  /// Weights at the window's begin; within a probe, what they changed since.
  std::vector<Tensor> window_;
};

}  // namespace hybrid_trainer
