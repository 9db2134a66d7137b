#include "phases/divergence.h"

#include <numeric>

#include "phases/skip_backward/least_squares.h"

namespace hybrid_trainer {

namespace {

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Returns the standard deviation, at least 1e-4 of the mean, to ignore rounding.
double spread_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  const double deviation = std::sqrt(sum / static_cast<double>(values.size() - 1));
  return std::max(deviation, 1e-4 * std::abs(mean));
}

/// Returns the correlation of neighboring residuals around the trend line: −1 for a strict
/// alternation, 0 for noise, which changes sign in two of three steps.
double lag_1_correlation(const std::vector<double>& values) {
  std::vector<double> ones(values.size(), 1.0), times(values.size());
  std::iota(times.begin(), times.end(), 0.0);
  const auto fit = fit_least_squares({ones, times}, values);
  if (!fit) return 0;
  const auto& r = fit->residuals;
  const double squares = std::inner_product(r.begin(), r.end(), r.begin(), 0.0);
  const double floor = 1e-4 * mean_of(values);
  if (squares <= floor * floor * static_cast<double>(r.size())) return 0;
  const double products = std::inner_product(r.begin(), r.end() - 1, r.begin() + 1, 0.0);
  const double ends = 0.5 * (r.front() * r.front() + r.back() * r.back());
  return products / (squares - ends);
}

void push(std::vector<double>& ring, double value, std::int64_t window) {
  if (static_cast<std::int64_t>(ring.size()) == window) ring.erase(ring.begin());
  ring.push_back(value);
}

Recovery recovery_for(Severity severity, const DivergenceConfig& config) {
  switch (severity) {
    case Severity::kNone: break;
    case Severity::kCaution: return config.on_caution;
    case Severity::kWarning: return config.on_warning;
    case Severity::kCritical: return config.on_critical;
  }
  return Recovery::kContinue;
}

}  // namespace

bool DivergenceMonitor::ready() const {
  return static_cast<std::int64_t>(losses_.size()) == config_.window;
}

Verdict DivergenceMonitor::assess(const GradientMeasurement& measurement) const {
  if (!measurement.finite()) {
    return {Signal::kNotFinite, concat("loss ", measurement.loss, ", gradient norm ",
                                       measurement.norm, ": not finite")};
  }
  if (!ready()) return {};
  const double baseline = median_of(norms_);
  if (measurement.norm > config_.gradient_factor * baseline) {
    return {Signal::kExplosion,
            concat("gradient norm ", brief(measurement.norm), " is over ", config_.gradient_factor,
                   " times its median ", brief(baseline))};
  }
  const Verdict loss = assess_loss(measurement.loss, mean_loss());
  if (!loss.normal()) return loss;
  if (measurement.norm < config_.vanishing_factor * baseline) {
    return {Signal::kVanishing, concat("gradient norm ", brief(measurement.norm),
                                       " vanished: its median is ", brief(baseline))};
  }
  const double correlation = lag_1_correlation(losses_);
  if (handled_losses_ == 0 && config_.oscillation < 1 && correlation <= -config_.oscillation) {
    return {Signal::kOscillation,
            concat("the loss oscillates: consecutive losses have a correlation of ",
                   brief(correlation))};
  }
  return {};
}

Verdict DivergenceMonitor::assess_loss(double loss, double expected) const {
  if (!std::isfinite(loss)) return {Signal::kNotFinite, concat("loss ", loss, " is not finite")};
  if (!ready()) return {};
  const double sigmas = (loss - expected) / spread_of(losses_);
  if (!(sigmas > config_.loss_sigmas)) return {};
  return {Signal::kLoss, concat("loss ", brief(loss), " is ", brief(sigmas),
                                " standard deviations above the expected ", brief(expected))};
}

void DivergenceMonitor::observe(const GradientMeasurement& measurement) {
  if (ready() && handled_losses_ > 0) --handled_losses_;  // the oldest loss leaves
  push(losses_, measurement.loss, config_.window);
  push(norms_, measurement.norm, config_.window);
}

double DivergenceMonitor::mean_loss() const {
  return losses_.empty() ? std::numeric_limits<double>::quiet_NaN() : mean_of(losses_);
}

void DivergenceMonitor::save(State& state) const {
  state.series["phases.monitor.losses"] = losses_;
  state.series["phases.monitor.norms"] = norms_;
  state.integers["phases.monitor.used_up"] = handled_losses_;
}

void DivergenceMonitor::load(const State& state) {
  losses_ = state.reals_of("phases.monitor.losses");
  norms_ = state.reals_of("phases.monitor.norms");
  handled_losses_ = state.integer("phases.monitor.used_up");
}

const std::vector<std::string>& enum_names(Recovery) {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Recovery recovery : kAllRecoveries) all.emplace_back(name_of(recovery));
    return all;
  }();
  return names;
}

const char* name_of(Severity severity) {
  static constexpr const char* kNames[] = {"none", "caution", "warning", "critical"};
  return kNames[static_cast<std::size_t>(severity)];
}

Severity severity_of(Signal signal) {
  switch (signal) {
    case Signal::kNone: break;
    case Signal::kVanishing:
    case Signal::kOscillation: return Severity::kCaution;
    case Signal::kLoss:
    case Signal::kExplosion: return Severity::kWarning;
    case Signal::kNotFinite: return Severity::kCritical;
  }
  return Severity::kNone;
}

RecoveryAction choose_recovery(const Verdict& verdict, std::int64_t warnings_in_a_row,
                               const DivergenceConfig& config) {
  RecoveryAction action;
  action.severity = severity_of(verdict.signal);
  const bool persists = config.critical_after > 0 && warnings_in_a_row >= config.critical_after;
  if (action.severity == Severity::kWarning && persists) action.severity = Severity::kCritical;
  action.kind = recovery_for(action.severity, config);
  action.reason = verdict.reason;
  if (action.concerns_predictions() && action.kind != Recovery::kResetPredictor)
    action.steps = config.recovery_steps;
  if (action.kind == Recovery::kReduceHorizon) action.amount = config.horizon_factor;
  if (action.kind == Recovery::kRaiseThreshold) action.amount = config.threshold_raise;
  if (action.kind == Recovery::kRollBack) action.amount = config.roll_back_rate;
  return action;
}

std::string RecoveryAction::text() const {
  switch (kind) {
    case Recovery::kContinue: return "";
    case Recovery::kReduceHorizon:
      return concat("the length of predictions is multiplied by ", amount, " for ", steps,
                    " steps");
    case Recovery::kRaiseThreshold:
      return concat("for ", steps, " steps, the confidence threshold rises by ", amount,
                    " of its distance to 1");
    case Recovery::kResetPredictor: return "the predictor is reset";
    case Recovery::kForceFull: return concat("no prediction for ", steps, " steps");
    case Recovery::kSkipBatch: return "the batch is skipped";
    case Recovery::kRollBack:
      return concat("the run returns to the last checkpoint, with ", amount,
                    " of the learning rate");
    case Recovery::kAbort: return "the run ends";
  }
  return "";
}

}  // namespace hybrid_trainer
