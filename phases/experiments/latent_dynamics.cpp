#include "phases/experiments/latent_dynamics.h"

#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;
using Dreams = LatentDynamics;

constexpr int kHidden = Dreams::kHidden, kCodes = Dreams::kCodes, kInput = kCodes + 1;
constexpr double kUniform = 0.01;

VectorXd sigmoid(const VectorXd& x) { return (1 + (-x.array()).exp()).inverse().matrix(); }

VectorXd stacked(const VectorXd& a, const VectorXd& b) {
  VectorXd both(a.size() + b.size());
  both << a, b;
  return both;
}

/// Softmax within each group, without the uniform part.
VectorXd softmax(VectorXd logits) {
  for (int group = 0; group < Dreams::kGroups; ++group) {
    auto part = logits.segment(group * Dreams::kCategories, Dreams::kCategories);
    part = (part.array() - part.maxCoeff()).exp().matrix().eval();
    part /= part.sum();
  }
  return logits;
}

VectorXd mixed(const VectorXd& soft) {
  return ((1 - kUniform) * soft.array() + kUniform / Dreams::kCategories).matrix();
}

/// Gradient by the logits, of one by the mixed probabilities.
VectorXd through_softmax(const VectorXd& soft, const VectorXd& gradient) {
  VectorXd result(kCodes);
  for (int at = 0; at < kCodes; at += Dreams::kCategories) {
    const auto p = soft.segment(at, Dreams::kCategories);
    const VectorXd g = (1 - kUniform) * gradient.segment(at, Dreams::kCategories);
    result.segment(at, Dreams::kCategories) = (p.array() * (g.array() - p.dot(g))).matrix();
  }
  return result;
}

double divergence(const VectorXd& q, const VectorXd& p) {
  return (q.array() * (q.array() / p.array()).log()).sum();
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
  /// Adds to the gradient; returns that by x.
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

/// The next h.
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

LatentDynamics::Latent LatentDynamics::observed(const Latent& before, const SeenStep& step) const {
  const Layout layout(features_);
  const VectorXd h = recurrent(before, step.action, nullptr);
  return {h, mixed(softmax(Layout::apply(parameters_, layout.posterior, stacked(h, step.seen))))};
}

LatentDynamics::Latent LatentDynamics::dreamt(const Latent& before, double action) const {
  const VectorXd h = recurrent(before, action, nullptr);
  return {h, mixed(softmax(Layout::apply(parameters_, Layout(features_).prior, h)))};
}

VectorXd LatentDynamics::decoded(const Latent& latent) const {
  return Layout::apply(parameters_, Layout(features_).decoder, stacked(latent.h, latent.z));
}

double LatentDynamics::loss(const std::vector<SeenStep>& window, VectorXd& gradient) const {
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
        softmax(Layout::apply(parameters_, layout.posterior, stacked(h, window[t].seen)));
    trace.prior = mixed(trace.soft_prior);
    trace.posterior = mixed(trace.soft_posterior);
    trace.by_posterior = share * (decoded({h, trace.posterior}) - window[t].seen);
    trace.by_prior = share * (decoded({h, trace.prior}) - window[t].seen);
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
    by_h += back(layout.posterior, stacked(trace.h, window[t].seen),
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

double LatentDynamics::train(const std::vector<SeenStep>& window, double rate) {
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

}  // namespace hybrid_trainer
