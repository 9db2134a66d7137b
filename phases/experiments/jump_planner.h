#pragma once

#include <Eigen/Core>
#include <utility>

#include "phases/skip_backward/jump_advisor.h"

namespace hybrid_trainer {

/// What one step of a run looked like: the action that led there, and what was seen.
struct SeenStep {
  double action = 0;
  Eigen::VectorXd seen;
};

/// A recurrent state-space model: a GRU's state h, and groups of categories z that hold what the
/// last observation told beyond it,
///   h' = GRU(h, [z, action]),  prior p(z | h'),  posterior q(z | h', seen),  seen ≈ D·[h', z].
/// z is the categories' probabilities, mixed with 1 % of uniform ones, so that equal runs dream
/// equally. Trained on windows by ½‖D[h, q] − seen‖² + ½‖D[h, p] − seen‖² + KL(q‖p), with Adam.
/// Source: Hafner et al. 2019, "Learning latent dynamics for planning from pixels"; categories:
/// Hafner et al. 2021, "Mastering Atari with discrete world models".
class LatentDynamics {
 public:
  static constexpr int kHidden = 16, kGroups = 4, kCategories = 4, kCodes = kGroups * kCategories;

  struct Latent {
    Eigen::VectorXd h = Eigen::VectorXd::Zero(kHidden), z = Eigen::VectorXd::Zero(kCodes);
  };

  LatentDynamics(int features, std::uint64_t seed);
  Latent observed(const Latent& before, const SeenStep& step) const;
  Latent dreamt(const Latent& before, double action) const;
  Eigen::VectorXd decoded(const Latent& latent) const;

  /// The window's mean loss a step; `gradient` gets its derivative.
  double loss(const std::vector<SeenStep>& window, Eigen::VectorXd& gradient) const;
  /// One step of Adam; returns the loss before it.
  double train(const std::vector<SeenStep>& window, double rate);
  /// Everything that learns, for checkpoints and tests.
  std::vector<double> state() const;
  void set_state(const std::vector<double>& state);
  Eigen::VectorXd& parameters() { return parameters_; }
  /// Floating-point operations of a step's forward pass, at most; training takes three times as many
  /// for each step of the window.
  double step_flops() const { return 2 * static_cast<double>(parameters_.size()); }

 private:
  struct Layout;  // where each matrix lies in the parameters
  struct Trace;   // what a step's backward pass needs
  Eigen::VectorXd recurrent(const Latent& before, double action, Trace* trace) const;

  int features_;
  Eigen::VectorXd parameters_, mean_, square_;  // Adam's moments
  double updates_ = 0;
};

/// Chooses how far a jump goes where phases.skip_backward.horizon is "dreamt": three recurrent models of the run's
/// loss and gradient norm learn from each true update and each jump, dream what a jump of each
/// length would do beside a Full step, and the one with the most progress for its cost is taken. The
/// direction is the predictor's.
///
/// Its confidence that the jump will be accepted in full is Φ(drop/spread) of the models, drawn to
/// what came of jumps of such a confidence: of those in the same tenth. Step lengths are multiplied
/// by what came of the three most similar jumps among the last residual_store ones, real drop by
/// dreamt one.
///
/// It counts its floating-point operations, each of which costs dream_cost operations of a Full step.
class JumpPlanner final : public JumpAdvisor {
 public:
  struct Plan : JumpPlan {
    double drop = 0;  // dreamt, of the loss, beyond that of a Full step
  };

  explicit JumpPlanner(const PhaseConfig& config);
  JumpPlan plan(const JumpPlan& granted) override { return plan(granted.steps); }
  /// Learns while all advice has cost at most a quarter of trial_share of the steps; where
  /// predictions do not pay, only where what all steps were charged has room for it as for trials.
  void see_update(const GradientMeasurement& measurement, const RunCosts& costs) override;
  void see_jump(const Jump& jump) override;
  std::optional<double> take_cost(double full_flops) override {
    return cost_of(take_flops(), full_flops);
  }
  double price_of(std::int64_t steps, double full_flops) const override {
    return cost_of(plan_flops(steps), full_flops);
  }

  /// After each true update, what it measured; where the models may also learn, they do.
  void see_update(double loss, double gradient_norm, bool may_learn);
  /// What an update that they learn from takes, in floating-point operations.
  double update_flops() const;
  /// And a plan of at most so many steps, at most.
  double plan_flops(std::int64_t most_steps) const;
  /// Operations since the last call.
  double take_flops() { return std::exchange(flops_, 0.0); }
  /// A jump of at most so many steps from here.
  Plan plan(std::int64_t most_steps);
  void save(State& state) const override;
  void load(const State& state) override;

 private:
  static constexpr int kFeatures = 2;
  static constexpr double kLengths[] = {0.25, 0.5, 1.0};  // of a step, that plans choose from
  static constexpr std::size_t kBins = 10, kWindow = 16, kHistory = 256;
  struct Dream {
    double drop = 0, spread = 0;
  };
  double cost_of(double flops, double full_flops) const {
    return config_.skip_backward.dream_cost * flops / full_flops;
  }
  std::vector<SeenStep> window(std::size_t begin, std::size_t end) const;
  void learn();
  std::vector<LatentDynamics::Latent> latents();
  std::vector<double> losses_after(double position,
                                   const std::vector<LatentDynamics::Latent>& latents);
  Dream dream_of(const std::vector<double>& without, const std::vector<double>& with) const;
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
  std::int64_t updates_ = 0;
  double flops_ = 0;
  double mean_ = 0, square_ = 0, norm_ = 0;   // running, of loss and log of the norm
  double action_ = 0;                         // since the last update
  double drop_ = 0, raw_ = 0, position_ = 0;  // of the plan under way
  std::vector<double> history_;               // action and features of the last updates
  std::vector<double> jumps_, true_;          // by tenths of the raw confidence
  std::vector<double> residuals_;             // drop, position and ratio of each of the last jumps
};

}  // namespace hybrid_trainer
