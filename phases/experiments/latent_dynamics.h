#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <vector>

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

}  // namespace hybrid_trainer
