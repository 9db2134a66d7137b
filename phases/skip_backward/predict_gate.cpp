#include <numeric>

#include "phases/skip_backward/least_squares.h"
#include "phases/skip_backward/prediction.h"

namespace hybrid_trainer {

void DirectionTrust::add(double slope) {
  if (count() == window_) slopes_.erase(slopes_.begin());
  slopes_.push_back(slope);
}

double DirectionTrust::mean_slope() const {
  if (slopes_.empty()) return 0;
  return std::accumulate(slopes_.begin(), slopes_.end(), 0.0) / static_cast<double>(count());
}

double DirectionTrust::confidence() const {
  if (count() < 2) return 0;
  const double mean = mean_slope();
  double squares = 0;
  for (const double slope : slopes_) squares += (slope - mean) * (slope - mean);
  const auto n = static_cast<double>(count());
  const double error = std::sqrt(squares / (n * (n - 1)));
  if (error == 0) return mean <= 0 ? 1.0 : 0.0;
  return 0.5 * std::erfc(mean / error / std::sqrt(2.0));
}

namespace {

constexpr double kEvidenceDecay = 0.9;
constexpr double kShortestStep = 1.0 / 16;  // relative to step_length
constexpr std::size_t kMinLosses = 4;       // losses on each side that judge a prediction
constexpr std::size_t kMaxLosses = 200;     // a trend is straight only for a while

}  // namespace

PredictGate::PredictGate(const PhaseConfig& config)
    : config_(config),
      window_(std::clamp(3 * static_cast<std::size_t>(config.full_steps), kMinLosses, kMaxLosses)),
      length_(std::min(config.skip_backward.trial_steps, config.max_predict_steps)) {}

PredictGate::Allowance PredictGate::allowance() const {
  if (config_.max_predict_steps == 0) return {};
  Allowance allowance;
  allowance.steps = length_;
  allowance.step_length = step_length_;
  allowance.trial = advantage() <= 0;
  if (allowance.trial) {
    const auto share = [&](double of) { return of * static_cast<double>(steps_); };
    const auto spent = static_cast<double>(trial_steps_ + length_);
    allowance.overdue =
        extrapolations_ == 0 || spent <= share(config_.skip_backward.trial_share / 2);
    allowance.open = allowance.overdue || spent <= share(config_.skip_backward.trial_share);
  } else {
    allowance.open = true;
  }
  return allowance;
}

double PredictGate::advantage() const {
  const Evidence sum = total();
  const double sure = sum.gain - config_.skip_backward.evidence_sigmas * std::sqrt(sum.variance);
  return std::min(sure, sum.drop) - std::max(0.0, sum.price);
}

bool PredictGate::ready() const { return recent_.size() >= kMinLosses; }

PredictGate::Verdict PredictGate::verdict() const {
  if (extrapolations_ == 0) return Verdict::kUntried;
  return advantage() > 0 ? Verdict::kAhead : Verdict::kBehind;
}

std::string PredictGate::explanation() const {
  if (extrapolations_ == 0) return "no prediction has been tried yet";
  if (advantage() > 0)
    return "the gate allows Predict: by its estimate, predicted steps lowered the loss more than "
           "training steps of the same cost";
  const std::string behind =
      "the gate keeps Predict off: by its estimate, predicted steps lowered the loss less than "
      "training steps of the same cost";
  if (config_.skip_backward.trial_share == 0)
    return behind + "; phases.skip_backward.trial_share 0 does not allow another probe";
  const double next =
      static_cast<double>(trial_steps_ + length_) / config_.skip_backward.trial_share;
  return concat(behind, "; next probe from step ",
                std::max(steps_ + 1, static_cast<std::int64_t>(std::ceil(next))), " on");
}

void PredictGate::add_full_loss(double loss) {
  if (after_.size() < window_) after_.push_back(loss);
  if (recent_.size() == window_) recent_.erase(recent_.begin());
  recent_.push_back(loss);
}

void PredictGate::begin_extrapolation(const Allowance& allowance) {
  past_ = total();
  last_ = {};
  before_ = std::move(recent_);
  after_.clear();
  recent_.clear();
  ++extrapolations_;
  if (allowance.trial) trial_steps_ += allowance.steps;
}

void PredictGate::finish_extrapolation(const Extrapolation& extrapolation) {
  last_ = extrapolation;
  if (!extrapolation.moved) return;
  const std::int64_t shortest =
      std::min(config_.skip_backward.trial_steps, config_.max_predict_steps);
  if (extrapolation.decision == Decision::kAccepted) {
    length_ *= 2;
    step_length_ *= 2;
  } else if (extrapolation.decision == Decision::kShrunk) {
    step_length_ *= extrapolation.kept_fraction;
  } else {
    length_ /= 2;
    step_length_ /= 2;
  }
  length_ = std::clamp(length_, shortest, config_.max_predict_steps);
  step_length_ = std::clamp(step_length_, kShortestStep, 1.0);
}

PredictGate::Evidence PredictGate::evidence_of_last_jump() const {
  const std::size_t side = std::min(before_.size(), after_.size());
  if (last_.decision == Decision::kNone || side < kMinLosses) return {};
  const std::size_t gap = side / 4;
  std::vector<double> ones, times, is_after, losses;
  const auto add = [&](double time, bool after, double loss) {
    ones.push_back(1);
    times.push_back(time);
    is_after.push_back(after ? 1 : 0);
    losses.push_back(loss);
  };
  for (std::size_t i = gap; i < side; ++i) {  // outwards from the prediction, on both sides
    const auto distance = static_cast<double>(i);
    add(-1 - distance, false, before_[before_.size() - 1 - i]);
    add(static_cast<double>(last_.updates) + distance, true, after_[i]);
  }
  const bool kept = last_.decision != Decision::kReverted;
  const auto fit = kept ? fit_least_squares({ones, times, is_after}, losses)
                        : fit_least_squares({ones, times}, losses);
  if (!fit) return {};
  Evidence evidence;
  evidence.price = -fit->coefficients[1] * last_.cost;
  if (!kept) return evidence;  // reverted: the gain is exactly zero
  evidence.gain = -fit->coefficients[2];
  evidence.variance = fit->standard_errors[2] * fit->standard_errors[2];
  evidence.drop = last_.paired_drop;
  return evidence;
}

PredictGate::Evidence PredictGate::total() const {
  const Evidence last = evidence_of_last_jump();
  return {kEvidenceDecay * past_.gain + last.gain,
          kEvidenceDecay * kEvidenceDecay * past_.variance + last.variance,
          kEvidenceDecay * past_.drop + last.drop, kEvidenceDecay * past_.price + last.price};
}

void PredictGate::save(State& state) const { visit_state(*this, StateWriter{state}); }

void PredictGate::load(const State& state) { visit_state(*this, StateReader{state}); }

}  // namespace hybrid_trainer
