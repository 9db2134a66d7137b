#include "phases/experiments/model_based_planner.h"

#include "hybrid_trainer/core/random.h"
#include "phases/state_fields.h"

namespace hybrid_trainer {

namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr int kHidden = LatentDynamics::kHidden, kCodes = LatentDynamics::kCodes,
              kInput = kCodes + 1;
constexpr double kUniform = 0.01;

VectorXd sigmoid(const VectorXd& x) { return (1 + (-x.array()).exp()).inverse().matrix(); }

VectorXd stacked(const VectorXd& a, const VectorXd& b) {
  VectorXd both(a.size() + b.size());
  both << a, b;
  return both;
}

/// Returns the softmax within each group, before it is mixed with uniform probabilities.
VectorXd softmax(VectorXd logits) {
  for (int group = 0; group < LatentDynamics::kGroups; ++group) {
    auto part = logits.segment(group * LatentDynamics::kCategories, LatentDynamics::kCategories);
    part = (part.array() - part.maxCoeff()).exp().matrix().eval();
    part /= part.sum();
  }
  return logits;
}

VectorXd mixed(const VectorXd& soft) {
  return ((1 - kUniform) * soft.array() + kUniform / LatentDynamics::kCategories).matrix();
}

/// Converts a gradient with respect to mixed probabilities to a gradient with respect to logits.
VectorXd through_softmax(const VectorXd& soft, const VectorXd& gradient) {
  VectorXd result(kCodes);
  for (int at = 0; at < kCodes; at += LatentDynamics::kCategories) {
    const auto p = soft.segment(at, LatentDynamics::kCategories);
    const VectorXd g = (1 - kUniform) * gradient.segment(at, LatentDynamics::kCategories);
    result.segment(at, LatentDynamics::kCategories) = (p.array() * (g.array() - p.dot(g))).matrix();
  }
  return result;
}

double divergence(const VectorXd& q, const VectorXd& p) {
  return (q.array() * (q.array() / p.array()).log()).sum();
}

constexpr std::size_t kModels = 3;
constexpr double kLearningRate = 3e-3, kStatisticsDecay = 0.98, kActionScale = 8, kPrior = 2;
constexpr double kMinSpread = 1e-3;  // minimum spread of a drop, in standard deviations of the loss
constexpr std::size_t kStride = 3;   // values per update in the history, and per residual

double normal_probability(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

std::size_t tenth_of(double confidence) {
  return std::min<std::size_t>(9, static_cast<std::size_t>(10 * std::max(0.0, confidence)));
}

}  // namespace

/// Matrices and biases in one vector, in this order.
struct LatentDynamics::Layout {
  struct Linear {
    Index begin, rows, columns;
    Index end() const { return begin + rows * (columns + 1); }
  };
  explicit Layout(int features)
      : input{0, 3 * kHidden, kInput},
        recurrence{input.end(), 3 * kHidden, kHidden},
        prior{recurrence.end(), kCodes, kHidden},
        posterior{prior.end(), kCodes, kHidden + features},
        decoder{posterior.end(), features, kHidden + kCodes} {}
  std::vector<Linear> all() const { return {input, recurrence, prior, posterior, decoder}; }

  Linear input, recurrence, prior, posterior, decoder;

  static VectorXd apply(const VectorXd& parameters, const Linear& map, const VectorXd& x) {
    return weights(parameters, map) * x + parameters.segment(map.end() - map.rows, map.rows);
  }
  /// Adds the gradient of the parameters to `gradient`, and returns the gradient of x.
  static VectorXd apply_back(const VectorXd& parameters, VectorXd& gradient, const Linear& map,
                             const VectorXd& x, const VectorXd& by_result) {
    Eigen::Map<MatrixXd>(gradient.data() + map.begin, map.rows, map.columns) +=
        by_result * x.transpose();
    gradient.segment(map.end() - map.rows, map.rows) += by_result;
    return weights(parameters, map).transpose() * by_result;
  }
  static Eigen::Map<const MatrixXd> weights(const VectorXd& parameters, const Linear& map) {
    return {parameters.data() + map.begin, map.rows, map.columns};
  }
};

struct LatentDynamics::Trace {
  Latent before;
  VectorXd input, reset, keep, candidate, recurrent_candidate, h;
  VectorXd soft_prior, soft_posterior, prior, posterior, by_prior, by_posterior;
};

LatentDynamics::LatentDynamics(int features, std::uint64_t seed) : features_(features) {
  const Layout layout(features);
  parameters_ = mean_ = square_ = VectorXd::Zero(layout.decoder.end());
  std::uint64_t tensor = 0;
  for (const Layout::Linear& map : layout.all()) {
    const RandomKey key{.seed = seed, .tensor = ++tensor};
    const double bound = 1 / std::sqrt(static_cast<double>(map.columns));
    for (Index i = 0; i < map.rows * map.columns; ++i) {
      const double uniform = to_unit_float(random_word(key, static_cast<std::uint64_t>(i)));
      parameters_[map.begin + i] = bound * (2 * uniform - 1);
    }
  }
}

VectorXd LatentDynamics::recurrent(const Latent& before, double action, Trace* trace) const {
  const Layout layout(features_);
  const VectorXd input = stacked(before.z, VectorXd::Constant(1, action));
  const VectorXd a = Layout::apply(parameters_, layout.input, input),
                 b = Layout::apply(parameters_, layout.recurrence, before.h);
  const VectorXd reset = sigmoid(a.head(kHidden) + b.head(kHidden)),
                 keep = sigmoid(a.segment(kHidden, kHidden) + b.segment(kHidden, kHidden)),
                 candidate = (a.tail(kHidden) + reset.cwiseProduct(b.tail(kHidden))).array().tanh();
  const VectorXd h = candidate + keep.cwiseProduct(before.h - candidate);
  if (trace != nullptr) {
    trace->before = before;
    trace->input = input;
    trace->reset = reset, trace->keep = keep, trace->candidate = candidate;
    trace->recurrent_candidate = b.tail(kHidden);
    trace->h = h;
  }
  return h;
}

LatentDynamics::Latent LatentDynamics::observed(const Latent& before,
                                                const ObservedStep& step) const {
  const Layout layout(features_);
  const VectorXd h = recurrent(before, step.action, nullptr);
  return {
      h,
      mixed(softmax(Layout::apply(parameters_, layout.posterior, stacked(h, step.observation))))};
}

LatentDynamics::Latent LatentDynamics::predicted(const Latent& before, double action) const {
  const VectorXd h = recurrent(before, action, nullptr);
  return {h, mixed(softmax(Layout::apply(parameters_, Layout(features_).prior, h)))};
}

VectorXd LatentDynamics::decoded(const Latent& latent) const {
  return Layout::apply(parameters_, Layout(features_).decoder, stacked(latent.h, latent.z));
}

double LatentDynamics::loss(const std::vector<ObservedStep>& window, VectorXd& gradient) const {
  const Layout layout(features_);
  std::vector<Trace> traces(window.size());
  const double share = 1 / static_cast<double>(window.size());
  double sum = 0;
  Latent latent;
  for (std::size_t t = 0; t < window.size(); ++t) {
    Trace& trace = traces[t];
    const VectorXd h = recurrent(latent, window[t].action, &trace);
    trace.soft_prior = softmax(Layout::apply(parameters_, layout.prior, h));
    trace.soft_posterior =
        softmax(Layout::apply(parameters_, layout.posterior, stacked(h, window[t].observation)));
    trace.prior = mixed(trace.soft_prior);
    trace.posterior = mixed(trace.soft_posterior);
    trace.by_posterior = share * (decoded({h, trace.posterior}) - window[t].observation);
    trace.by_prior = share * (decoded({h, trace.prior}) - window[t].observation);
    sum += 0.5 * (trace.by_posterior.squaredNorm() + trace.by_prior.squaredNorm()) / share +
           share * divergence(trace.posterior, trace.prior);
    latent = {h, trace.posterior};
  }
  gradient = VectorXd::Zero(parameters_.size());
  const auto back = [&](const Layout::Linear& map, const VectorXd& x, const VectorXd& by) {
    return Layout::apply_back(parameters_, gradient, map, x, by);
  };
  VectorXd by_h = VectorXd::Zero(kHidden), by_z = VectorXd::Zero(kCodes);
  for (std::size_t t = window.size(); t-- > 0;) {
    const Trace& trace = traces[t];
    const VectorXd at_posterior =
                       back(layout.decoder, stacked(trace.h, trace.posterior), trace.by_posterior),
                   at_prior = back(layout.decoder, stacked(trace.h, trace.prior), trace.by_prior);
    by_h += at_posterior.head(kHidden) + at_prior.head(kHidden);
    const auto q = trace.posterior.array(), p = trace.prior.array();
    const VectorXd by_q = by_z + at_posterior.tail(kCodes) + share * ((q / p).log() + 1).matrix(),
                   by_p = at_prior.tail(kCodes) - share * (q / p).matrix();
    by_h += back(layout.posterior, stacked(trace.h, window[t].observation),
                 through_softmax(trace.soft_posterior, by_q))
                .head(kHidden);
    by_h += back(layout.prior, trace.h, through_softmax(trace.soft_prior, by_p));

    const VectorXd by_candidate =
        (by_h.array() * (1 - trace.keep.array()) * (1 - trace.candidate.array().square()));
    const VectorXd by_keep = by_h.array() * (trace.before.h - trace.candidate).array() *
                             trace.keep.array() * (1 - trace.keep.array());
    const VectorXd by_reset = by_candidate.array() * trace.recurrent_candidate.array() *
                              trace.reset.array() * (1 - trace.reset.array());
    VectorXd by_input(3 * kHidden), by_recurrence(3 * kHidden);
    by_input << by_reset, by_keep, by_candidate;
    by_recurrence << by_reset, by_keep, by_candidate.cwiseProduct(trace.reset);
    const VectorXd carried = by_h.cwiseProduct(trace.keep);
    by_h = carried + back(layout.recurrence, trace.before.h, by_recurrence);
    by_z = back(layout.input, trace.input, by_input).head(kCodes);
  }
  return sum;
}

double LatentDynamics::train(const std::vector<ObservedStep>& window, double rate) {
  VectorXd gradient;
  const double found = loss(window, gradient);
  if (!gradient.allFinite()) return found;
  gradient *= std::min(1.0, 1 / std::max(1e-12, gradient.norm()));
  ++updates_;
  mean_ = 0.9 * mean_ + 0.1 * gradient;
  square_ = 0.999 * square_ + 0.001 * gradient.cwiseAbs2();
  const double m = rate / (1 - std::pow(0.9, updates_)), v = 1 / (1 - std::pow(0.999, updates_));
  parameters_.array() -= m * mean_.array() / ((v * square_.array()).sqrt() + 1e-8);
  return found;
}

std::vector<double> LatentDynamics::state() const {
  std::vector<double> all{updates_};
  for (const VectorXd* part : {&parameters_, &mean_, &square_})
    all.insert(all.end(), part->begin(), part->end());
  return all;
}

void LatentDynamics::set_state(const std::vector<double>& state) {
  const auto size = static_cast<std::size_t>(parameters_.size());
  if (state.size() != 3 * size + 1)
    throw DataError(concat("the predictor's recurrent model has ", state.size(), " numbers, want ",
                           3 * size + 1));
  updates_ = state[0];
  std::size_t at = 1;
  for (VectorXd* part : {&parameters_, &mean_, &square_}) {
    *part = Eigen::Map<const VectorXd>(state.data() + at, parameters_.size());
    at += size;
  }
}

ModelBasedPlanner::ModelBasedPlanner(const PhaseConfig& config)
    : config_(config), extrapolations_(kBins, 0.0), accepted_(kBins, 0.0) {
  for (std::uint64_t seed = 0; seed < kModels; ++seed) models_.emplace_back(kFeatures, seed);
}

void ModelBasedPlanner::observe_update(const GradientMeasurement& measurement,
                                       const RunCosts& costs) {
  const double cost = cost_of(update_flops(), costs.full_flops);
  const bool may_train =
      costs.advice + cost <= config_.skip_backward.trial_share / 4 * costs.steps &&
      (costs.pays || costs.extra + cost <= 2 * config_.skip_backward.trial_share * costs.steps);
  observe_update(measurement.loss, measurement.norm, may_train);
}

/// Records an update. The features are differences from running means. The loss difference is
/// divided by the running standard deviation, so features have magnitudes near 1.
void ModelBasedPlanner::observe_update(double loss, double gradient_norm, bool may_train) {
  if (!std::isfinite(loss) || !std::isfinite(gradient_norm)) return;
  const double log_norm = std::log(std::max(gradient_norm, 1e-12));
  if (updates_ == 0) mean_ = loss, norm_ = log_norm;
  const double deviation = std::sqrt(std::max(square_, 1e-12));
  const double difference = loss - mean_;
  const Eigen::VectorXd observation{
      {std::clamp(updates_ < 2 ? 0.0 : difference / deviation, -4.0, 4.0),
       std::clamp(log_norm - norm_, -4.0, 4.0)}};
  ++updates_;
  mean_ += (1 - kStatisticsDecay) * difference;
  square_ = kStatisticsDecay * square_ + (1 - kStatisticsDecay) * difference * difference;
  norm_ += (1 - kStatisticsDecay) * (log_norm - norm_);
  history_.insert(history_.end(), {action_, observation[0], observation[1]});
  if (history_.size() > kStride * kHistory) history_.erase(history_.begin(), history_.begin() + 3);
  action_ = 0;
  if (may_train) learn();
}

std::vector<ObservedStep> ModelBasedPlanner::window(std::size_t begin, std::size_t end) const {
  std::vector<ObservedStep> steps;
  for (std::size_t t = begin; t < end; ++t) {
    const double* at = &history_[kStride * t];
    steps.push_back({at[0], Eigen::VectorXd{{at[1], at[2]}}});
  }
  return steps;
}

void ModelBasedPlanner::learn() {
  const std::size_t kept = history_.size() / kStride;
  if (kept < kWindow) return;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const RandomKey key{.seed = 0, .step = static_cast<std::uint64_t>(updates_), .tensor = i};
    const std::size_t begin = random_below(key, 0, kept - kWindow + 1);
    models_[i].train(window(begin, begin + kWindow), kLearningRate);
  }
  flops_ += update_flops();
}

double ModelBasedPlanner::update_flops() const {
  return kModels * 3 * static_cast<double>(kWindow) * models_.front().step_flops();
}

double ModelBasedPlanner::plan_flops(std::int64_t max_steps) const {
  const auto horizons = std::bit_width(static_cast<std::uint64_t>(max_steps));
  const std::size_t predictions = 1 + std::size(kLengths) * static_cast<std::size_t>(horizons);
  return static_cast<double>(kModels * (kWindow + predictions)) * models_.front().step_flops();
}

/// Returns each model's state after the updates of at most one training window.
std::vector<LatentDynamics::Latent> ModelBasedPlanner::latents() {
  const std::size_t kept = history_.size() / kStride;
  const std::vector<ObservedStep> steps = window(kept - std::min(kept, kWindow), kept);
  std::vector<LatentDynamics::Latent> latents(models_.size());
  for (std::size_t i = 0; i < models_.size(); ++i) {
    for (const ObservedStep& step : steps) latents[i] = models_[i].observed(latents[i], step);
    flops_ += static_cast<double>(steps.size()) * models_[i].step_flops();
  }
  return latents;
}

/// Returns each model's predicted loss after a prediction that ends at `position` and one Full
/// step. Losses are differences from the running mean, in running standard deviations.
std::vector<double> ModelBasedPlanner::losses_after(
    double position, const std::vector<LatentDynamics::Latent>& latents) {
  std::vector<double> losses;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const LatentDynamics::Latent next = models_[i].predicted(latents[i], position / kActionScale);
    losses.push_back(models_[i].decoded(next)[0]);
    flops_ += models_[i].step_flops();
  }
  return losses;
}

/// Returns the loss drop of a prediction and a Full step, minus the drop of the Full step alone.
ModelBasedPlanner::ModelBasedDrop ModelBasedPlanner::drop_of(
    const std::vector<double>& without, const std::vector<double>& with) const {
  const double deviation = std::sqrt(std::max(square_, 1e-12));
  ModelBasedDrop estimate;
  for (std::size_t i = 0; i < kModels; ++i) estimate.drop += (without[i] - with[i]) / kModels;
  for (std::size_t i = 0; i < kModels; ++i) {
    const double centered = without[i] - with[i] - estimate.drop;
    estimate.spread += centered * centered / (kModels - 1);
  }
  estimate.spread = deviation * std::max(kMinSpread, std::sqrt(estimate.spread));
  estimate.drop *= deviation;
  return estimate;
}

/// Returns the total length of `steps` predicted steps, each `decay` times the previous one.
double ModelBasedPlanner::reach(std::int64_t steps, double step_length) const {
  double sum = 0;
  for (; steps > 0; --steps, step_length *= config_.skip_backward.decay) sum += step_length;
  return sum;
}

ModelBasedPlanner::Plan ModelBasedPlanner::plan(std::int64_t max_steps) {
  Plan best;
  double best_rate = -HUGE_VAL;
  const std::vector<LatentDynamics::Latent> here = latents();
  const std::vector<double> without = losses_after(0, here);
  for (std::int64_t steps = 1; steps <= max_steps; steps *= 2) {
    for (const double length : kLengths) {
      const ModelBasedDrop estimate = drop_of(without, losses_after(reach(steps, length), here));
      const double probes =
          static_cast<double>(2 * std::min(config_.skip_backward.probe_batches, steps) + steps);
      const double rate = (estimate.drop - estimate.spread) / (1 + probes * config_.forward_cost);
      if (rate <= best_rate) continue;
      best_rate = rate;
      best = {{steps, length, normal_probability(estimate.drop / estimate.spread)}, estimate.drop};
    }
  }
  raw_ = best.confidence;
  drop_ = best.drop;
  best.confidence = calibrated(raw_);
  position_ = reach(best.steps, best.step_length);
  best.step_length = std::min(1.0, best.step_length * correction(drop_, position_));
  return best;
}

double ModelBasedPlanner::calibrated(double confidence) const {
  const std::size_t bin = tenth_of(confidence);
  return (accepted_[bin] + kPrior * confidence) / (extrapolations_[bin] + kPrior);
}

double ModelBasedPlanner::correction(double drop, double position) const {
  std::vector<std::pair<double, double>> by_distance;
  for (std::size_t at = 0; at < residuals_.size(); at += kStride) {
    const double drop_distance = (residuals_[at] - drop) / (std::abs(drop) + 1e-12),
                 position_distance = (residuals_[at + 1] - position) / kActionScale;
    by_distance.emplace_back(drop_distance * drop_distance + position_distance * position_distance,
                             residuals_[at + 2]);
  }
  if (by_distance.empty()) return 1;
  const std::size_t near = std::min<std::size_t>(3, by_distance.size());
  std::partial_sort(by_distance.begin(), by_distance.begin() + static_cast<std::ptrdiff_t>(near),
                    by_distance.end());
  double sum = 0;
  for (std::size_t i = 0; i < near; ++i) sum += by_distance[i].second;
  return sum / static_cast<double>(near);
}

void ModelBasedPlanner::observe_result(const Extrapolation& extrapolation) {
  if (!extrapolation.moved) return;
  const std::size_t bin = tenth_of(raw_);
  extrapolations_[bin] += 1;
  accepted_[bin] += extrapolation.decision == Decision::kAccepted ? 1 : 0;
  action_ = extrapolation.final_position / kActionScale;
  if (config_.skip_backward.residual_store == 0) return;
  const double ratio = drop_ > 0 ? extrapolation.paired_drop / drop_ : 1;
  residuals_.insert(residuals_.end(), {drop_, position_, std::clamp(ratio, 0.25, 2.0)});
  if (std::ssize(residuals_) >
      config_.skip_backward.residual_store * static_cast<std::int64_t>(kStride))
    residuals_.erase(residuals_.begin(), residuals_.begin() + kStride);
}

void ModelBasedPlanner::save(State& state) const {
  visit_state(*this, StateWriter{state});
  for (std::size_t i = 0; i < models_.size(); ++i)
    state.series[concat("phases.planner.model.", i)] = models_[i].state();
}

void ModelBasedPlanner::load(const State& state) {
  *this = ModelBasedPlanner(config_);
  if (!state.integers.contains("phases.planner.updates")) return;
  visit_state(*this, StateReader{state});
  for (std::size_t i = 0; i < models_.size(); ++i)
    models_[i].set_state(state.reals_of(concat("phases.planner.model.", i)));
}

}  // namespace hybrid_trainer
