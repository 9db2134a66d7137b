#pragma once

#include <cstdint>
#include <vector>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "phases/jump.h"
#include "phases/latent_dynamics.h"

namespace hybrid_trainer {

/// Chooses how far a jump goes where phases.horizon is "dreamt": three recurrent models of the run's
/// loss and gradient norm learn from each true update and each jump, dream what a jump of each
/// length would do beside a Full step, and the one with the most progress for its cost is taken. The
/// direction is the predictor's.
///
/// Its confidence that the jump will be accepted in full is Φ(drop/spread) of the models, drawn to
/// what came of jumps of such a confidence: of those in the same tenth. Step lengths are multiplied
/// by what came of the three most similar jumps among the last phases.residual_store, real drop by
/// dreamt one.
class JumpPlanner {
 public:
  struct Plan {
    std::int64_t steps = 1;
    double step_length = 1;
    double confidence = 0;
    double drop = 0;  // dreamt, of the loss, beyond that of a Full step
  };

  explicit JumpPlanner(const PhaseConfig& config);
  bool plans() const { return !models_.empty(); }
  /// After each true update, what it measured.
  void see_update(double loss, double gradient_norm);
  /// A jump of at most so many steps from here.
  Plan plan(std::int64_t most_steps);
  /// The jump that was planned last is decided on; `position` is where it was left, 0 if reverted.
  void see_jump(const Jump& jump, double position);

  void save(State& state) const;
  void load(const State& state);

 private:
  static constexpr int kFeatures = 2;
  static constexpr std::size_t kBins = 10, kWindow = 16, kHistory = 256;
  struct Dream {
    double drop = 0, spread = 0;
  };
  void see(double action, const Eigen::VectorXd& seen);
  Dream dream(double position) const;
  double calibrated(double confidence) const;
  double correction(double drop, double position) const;
  double reach(std::int64_t steps, double step_length) const;

  template <class Self, class Visit>
  static void visit_state(Self& self, const Visit& visit) {
    visit("phases.planner.updates", self.updates_);
    visit("phases.planner.mean", self.mean_);
    visit("phases.planner.square", self.square_);
    visit("phases.planner.norm", self.norm_);
    visit("phases.planner.action", self.action_);
    visit("phases.planner.drop", self.drop_);
    visit("phases.planner.raw", self.raw_);
    visit("phases.planner.position", self.position_);
    visit("phases.planner.history", self.history_);
    visit("phases.planner.jumps", self.jumps_);
    visit("phases.planner.true", self.true_);
    visit("phases.planner.residuals", self.residuals_);
  }

  PhaseConfig config_;
  std::vector<LatentDynamics> models_;
  std::vector<LatentDynamics::Latent> latents_;
  std::int64_t updates_ = 0;
  double mean_ = 0, square_ = 0, norm_ = 0;   // running, of loss and log of the norm
  double action_ = 0;                         // since the last update
  double drop_ = 0, raw_ = 0, position_ = 0;  // of the plan under way
  std::vector<double> history_;               // action and features of the last updates
  std::vector<double> jumps_, true_;          // by tenths of the raw confidence
  std::vector<double> residuals_;             // drop, position and ratio of each of the last jumps
};

}  // namespace hybrid_trainer
