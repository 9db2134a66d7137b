#include "phases/experiments/jump_planner.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "phases/state_fields.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kModels = 3;
constexpr double kLearningRate = 3e-3, kFading = 0.98, kActionScale = 8, kPrior = 2;
constexpr double kLeastSpread = 1e-3;  // of a dreamt drop, in running deviations of the loss
constexpr std::size_t kStride = 3;     // numbers of an update in the history, and of a residual

double normal_probability(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

}  // namespace

JumpPlanner::JumpPlanner(const PhaseConfig& config)
    : config_(config), jumps_(kBins, 0.0), true_(kBins, 0.0) {
  for (std::uint64_t seed = 0; seed < kModels; ++seed) models_.emplace_back(kFeatures, seed);
}

void JumpPlanner::see_update(const GradientMeasurement& measurement, const RunCosts& costs) {
  const double cost = cost_of(update_flops(), costs.full_flops);
  const bool may_learn =
      costs.advice + cost <= config_.skip_backward.trial_share / 4 * costs.steps &&
      (costs.pays || costs.extra + cost <= 2 * config_.skip_backward.trial_share * costs.steps);
  see_update(measurement.loss, measurement.norm, may_learn);
}

/// Features are in running deviations from running means, so that models see numbers near 1 however
/// far the run has come.
void JumpPlanner::see_update(double loss, double gradient_norm, bool may_learn) {
  if (!std::isfinite(loss) || !std::isfinite(gradient_norm)) return;
  const double log_norm = std::log(std::max(gradient_norm, 1e-12));
  if (updates_ == 0) mean_ = loss, norm_ = log_norm;
  const double deviation = std::sqrt(std::max(square_, 1e-12));
  const double difference = loss - mean_;
  const Eigen::VectorXd seen{{std::clamp(updates_ < 2 ? 0.0 : difference / deviation, -4.0, 4.0),
                              std::clamp(log_norm - norm_, -4.0, 4.0)}};
  ++updates_;
  mean_ += (1 - kFading) * difference;
  square_ = kFading * square_ + (1 - kFading) * difference * difference;
  norm_ += (1 - kFading) * (log_norm - norm_);
  history_.insert(history_.end(), {action_, seen[0], seen[1]});
  if (history_.size() > kStride * kHistory) history_.erase(history_.begin(), history_.begin() + 3);
  action_ = 0;
  if (may_learn) learn();
}

std::vector<SeenStep> JumpPlanner::window(std::size_t begin, std::size_t end) const {
  std::vector<SeenStep> steps;
  for (std::size_t t = begin; t < end; ++t) {
    const double* at = &history_[kStride * t];
    steps.push_back({at[0], Eigen::VectorXd{{at[1], at[2]}}});
  }
  return steps;
}

void JumpPlanner::learn() {
  const std::size_t kept = history_.size() / kStride;
  if (kept < kWindow) return;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const RandomKey key{.seed = 0, .step = static_cast<std::uint64_t>(updates_), .tensor = i};
    const std::size_t begin = random_below(key, 0, kept - kWindow + 1);
    models_[i].train(window(begin, begin + kWindow), kLearningRate);
  }
  flops_ += update_flops();
}

double JumpPlanner::update_flops() const {
  return kModels * 3 * static_cast<double>(kWindow) * models_.front().step_flops();
}

double JumpPlanner::plan_flops(std::int64_t most_steps) const {
  const auto horizons = std::bit_width(static_cast<std::uint64_t>(most_steps));
  const std::size_t dreams = 1 + std::size(kLengths) * static_cast<std::size_t>(horizons);
  return static_cast<double>(kModels * (kWindow + dreams)) * models_.front().step_flops();
}

/// Each model's, after the last updates: as many as it learns from at once.
std::vector<LatentDynamics::Latent> JumpPlanner::latents() {
  const std::size_t kept = history_.size() / kStride;
  const std::vector<SeenStep> steps = window(kept - std::min(kept, kWindow), kept);
  std::vector<LatentDynamics::Latent> latents(models_.size());
  for (std::size_t i = 0; i < models_.size(); ++i) {
    for (const SeenStep& step : steps) latents[i] = models_[i].observed(latents[i], step);
    flops_ += static_cast<double>(steps.size()) * models_[i].step_flops();
  }
  return latents;
}

/// The loss that each model sees after a Full step and a jump, in running deviations.
std::vector<double> JumpPlanner::losses_after(double position,
                                              const std::vector<LatentDynamics::Latent>& latents) {
  std::vector<double> losses;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const LatentDynamics::Latent next = models_[i].dreamt(latents[i], position / kActionScale);
    losses.push_back(models_[i].decoded(next)[0]);
    flops_ += models_[i].step_flops();
  }
  return losses;
}

/// What a jump would lower the loss by beyond a Full step from the same place.
JumpPlanner::Dream JumpPlanner::dream_of(const std::vector<double>& without,
                                         const std::vector<double>& with) const {
  const double deviation = std::sqrt(std::max(square_, 1e-12));
  Dream dream;
  for (std::size_t i = 0; i < kModels; ++i) dream.drop += (without[i] - with[i]) / kModels;
  for (std::size_t i = 0; i < kModels; ++i) {
    const double away = without[i] - with[i] - dream.drop;
    dream.spread += away * away / (kModels - 1);
  }
  dream.spread = deviation * std::max(kLeastSpread, std::sqrt(dream.spread));
  dream.drop *= deviation;
  return dream;
}

/// Of the first predicted step's length times so many, each `decay` of the one before.
double JumpPlanner::reach(std::int64_t steps, double step_length) const {
  double sum = 0;
  for (; steps > 0; --steps, step_length *= config_.skip_backward.decay) sum += step_length;
  return sum;
}

JumpPlanner::Plan JumpPlanner::plan(std::int64_t most_steps) {
  Plan best;
  double best_rate = -HUGE_VAL;
  const std::vector<LatentDynamics::Latent> here = latents();
  const std::vector<double> without = losses_after(0, here);
  for (std::int64_t steps = 1; steps <= most_steps; steps *= 2) {
    for (const double length : kLengths) {
      const Dream dreamt = dream_of(without, losses_after(reach(steps, length), here));
      const double probes =
          static_cast<double>(2 * std::min(config_.skip_backward.probe_batches, steps) + steps);
      const double rate = (dreamt.drop - dreamt.spread) / (1 + probes * config_.forward_cost);
      if (rate <= best_rate) continue;
      best_rate = rate;
      best = {{steps, length, normal_probability(dreamt.drop / dreamt.spread)}, dreamt.drop};
    }
  }
  raw_ = best.confidence;
  drop_ = best.drop;
  best.confidence = calibrated(raw_);
  position_ = reach(best.steps, best.step_length);
  best.step_length = std::min(1.0, best.step_length * correction(drop_, position_));
  return best;
}

namespace {

std::size_t tenth_of(double confidence) {
  return std::min<std::size_t>(9, static_cast<std::size_t>(10 * std::max(0.0, confidence)));
}

}  // namespace

double JumpPlanner::calibrated(double confidence) const {
  const std::size_t bin = tenth_of(confidence);
  return (true_[bin] + kPrior * confidence) / (jumps_[bin] + kPrior);
}

double JumpPlanner::correction(double drop, double position) const {
  std::vector<std::pair<double, double>> by_distance;
  for (std::size_t at = 0; at < residuals_.size(); at += kStride) {
    const double of_drop = (residuals_[at] - drop) / (std::abs(drop) + 1e-12),
                 of_position = (residuals_[at + 1] - position) / kActionScale;
    by_distance.emplace_back(of_drop * of_drop + of_position * of_position, residuals_[at + 2]);
  }
  if (by_distance.empty()) return 1;
  const std::size_t near = std::min<std::size_t>(3, by_distance.size());
  std::partial_sort(by_distance.begin(), by_distance.begin() + static_cast<std::ptrdiff_t>(near),
                    by_distance.end());
  double sum = 0;
  for (std::size_t i = 0; i < near; ++i) sum += by_distance[i].second;
  return sum / static_cast<double>(near);
}

void JumpPlanner::see_jump(const Jump& jump) {
  if (!jump.moved) return;
  const std::size_t bin = tenth_of(raw_);
  jumps_[bin] += 1;
  true_[bin] += jump.decision == Decision::kAccepted ? 1 : 0;
  action_ = jump.left_at / kActionScale;
  if (config_.skip_backward.residual_store == 0) return;
  const double ratio = drop_ > 0 ? jump.paired_drop / drop_ : 1;
  residuals_.insert(residuals_.end(), {drop_, position_, std::clamp(ratio, 0.25, 2.0)});
  if (std::ssize(residuals_) >
      config_.skip_backward.residual_store * static_cast<std::int64_t>(kStride))
    residuals_.erase(residuals_.begin(), residuals_.begin() + kStride);
}

void JumpPlanner::save(State& state) const {
  visit_state(*this, StateWriter{state});
  for (std::size_t i = 0; i < models_.size(); ++i)
    state.series[concat("phases.planner.model.", i)] = models_[i].state();
}

void JumpPlanner::load(const State& state) {
  *this = JumpPlanner(config_);
  if (!state.integers.contains("phases.planner.updates")) return;
  visit_state(*this, StateReader{state});
  for (std::size_t i = 0; i < models_.size(); ++i)
    models_[i].set_state(state.reals_of(concat("phases.planner.model.", i)));
}

}  // namespace hybrid_trainer
