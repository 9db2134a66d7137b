#pragma once

#include <Eigen/Core>

#include "phases/skip_backward/extrapolation_advisor.h"

namespace hybrid_trainer {

/// One step of a run: the action before it, and the observation.
struct ObservedStep {
  double action = 0;
  Eigen::VectorXd observation;
};

/// A recurrent state-space model. h is the state of a GRU, and z are groups of categorical
/// variables that encode the last observation:
///   h' = GRU(h, [z, action]),  prior p(z | h'),  posterior q(z | h', observation),
///   observation ≈ D·[h', z].
/// z contains the probabilities of the categories, mixed with 1 % uniform. There is no sampling, so
/// identical runs have identical predictions. Trained with Adam on windows of the run, to minimize
/// ½‖D[h, q] − observation‖² + ½‖D[h, p] − observation‖² + KL(q‖p). Source: Hafner et al. 2019,
/// "Learning latent dynamics for planning from pixels"; categories: Hafner et al. 2021, "Mastering
/// Atari with discrete world models".
class LatentDynamics {
 public:
  static constexpr int kHidden = 16, kGroups = 4, kCategories = 4, kCodes = kGroups * kCategories;

  struct Latent {
    Eigen::VectorXd h = Eigen::VectorXd::Zero(kHidden), z = Eigen::VectorXd::Zero(kCodes);
  };

  LatentDynamics(int features, std::uint64_t seed);
  Latent observed(const Latent& before, const ObservedStep& step) const;
  Latent predicted(const Latent& before, double action) const;
  Eigen::VectorXd decoded(const Latent& latent) const;

  /// Returns the mean loss per step of the window. Writes its derivative to `gradient`.
  double loss(const std::vector<ObservedStep>& window, Eigen::VectorXd& gradient) const;
  double train(const std::vector<ObservedStep>& window, double rate);
  std::vector<double> state() const;
  void set_state(const std::vector<double>& state);
  Eigen::VectorXd& parameters() { return parameters_; }
  /// Returns an upper bound of the FLOPs of a forward step. Training takes three times as many.
  double step_flops() const { return 2 * static_cast<double>(parameters_.size()); }

 private:
  struct Layout;  // offsets of the matrices in the parameters
  struct Trace;   // inputs of a step's backward pass
  Eigen::VectorXd recurrent(const Latent& before, double action, Trace* trace) const;

  int features_;
  Eigen::VectorXd parameters_, mean_, square_;  // Adam's moments
  double updates_ = 0;
};

/// Chooses the length of predictions for phases.skip_backward.horizon "model_based". Three
/// recurrent models learn from computed updates and predictions, and simulate predictions of
/// several lengths. The planner chooses the one with the most progress per cost.
///
/// The confidence that a prediction will be accepted without shrinking is Φ(drop/spread), with the
/// mean and spread of the drops that the models predict. It is calibrated by earlier predictions
/// whose confidence was in the same tenth. Step lengths are multiplied by the ratio of measured to
/// simulated drop, from the three most similar of the last residual_store predictions. A planner
/// FLOP counts as model_based_cost FLOPs of a Full step.
class ModelBasedPlanner final : public ExtrapolationAdvisor {
 public:
  struct Plan : ExtrapolationPlan {
    double drop = 0;  // simulated loss drop minus the loss drop of a Full step
  };

  explicit ModelBasedPlanner(const PhaseConfig& config);
  ExtrapolationPlan plan(const ExtrapolationPlan& allowed) override { return plan(allowed.steps); }
  /// Trains the models if all advice costs less than a quarter of trial_share of the run's steps
  /// and, unless predictions beat Full, the run's extra cost is within the limit for probes.
  void observe_update(const GradientMeasurement& measurement, const RunCosts& costs) override;
  void observe_result(const Extrapolation& extrapolation) override;
  std::optional<double> take_cost(double full_flops) override {
    return cost_of(take_flops(), full_flops);
  }
  double estimated_cost(std::int64_t steps, double full_flops) const override {
    return cost_of(plan_flops(steps), full_flops);
  }

  void observe_update(double loss, double gradient_norm, bool may_train);
  /// Returns the FLOPs of training the planner's models on one update of the run.
  double update_flops() const;
  /// Returns an upper bound of the FLOPs of a plan of at most `max_steps`.
  double plan_flops(std::int64_t max_steps) const;
  double take_flops() { return std::exchange(flops_, 0.0); }
  Plan plan(std::int64_t max_steps);
  void save(State& state) const override;
  void load(const State& state) override;

 private:
  static constexpr int kFeatures = 2;
  static constexpr double kLengths[] = {0.25, 0.5, 1.0};  // candidates for the step length
  static constexpr std::size_t kBins = 10, kWindow = 16, kHistory = 256;
  struct ModelBasedDrop {
    double drop = 0, spread = 0;
  };
  double cost_of(double flops, double full_flops) const {
    return config_.skip_backward.model_based_cost * flops / full_flops;
  }
  std::vector<ObservedStep> window(std::size_t begin, std::size_t end) const;
  void learn();
  std::vector<LatentDynamics::Latent> latents();
  std::vector<double> losses_after(double position,
                                   const std::vector<LatentDynamics::Latent>& latents);
  ModelBasedDrop drop_of(const std::vector<double>& without, const std::vector<double>& with) const;
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
    visit("phases.planner.jumps", self.extrapolations_);
    visit("phases.planner.true", self.accepted_);
    visit("phases.planner.residuals", self.residuals_);
  }

  PhaseConfig config_;
  std::vector<LatentDynamics> models_;
  std::int64_t updates_ = 0;
  double flops_ = 0;
  // Running mean and variance of the loss, and running mean of the log of the norm.
  double mean_ = 0, square_ = 0, norm_ = 0;
  double action_ = 0;                              // action since the last update
  double drop_ = 0, raw_ = 0, position_ = 0;       // values of the current plan
  std::vector<double> history_;                    // actions and features of the last updates
  std::vector<double> extrapolations_, accepted_;  // indexed by tenth of the raw confidence
  std::vector<double> residuals_;  // drop, position and ratio of each recent prediction
};

}  // namespace hybrid_trainer
