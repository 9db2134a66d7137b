#include "hybrid_trainer/phases/predictor.h"

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "phases/state_fields.h"

namespace hybrid_trainer {

namespace {

/// Least-squares extrapolation of the recent weights, sampled every `interval` updates. From three
/// consecutive changes D1, D2, D3, the slope per step that best fits the four points of each weight
/// is (0.3·D1 + 0.4·D2 + 0.3·D3)/interval. Each tensor is scaled by the share of a change that
/// remains two intervals later, clip(<D3, D1>/<D1, D1>, 0, 1), which is near 0 for noise. Memory:
/// four tensors of the weights' size, allocated at the first update.
class LinearPredictor : public Predictor {
 public:
  explicit LinearPredictor(std::int64_t interval) : interval_(interval) {}
  void observe(Trainable& model) override;
  Readiness readiness() const override {
    const bool full = updates_ > interval_ * static_cast<std::int64_t>(kChanges);
    return full ? Readiness::kReady : Readiness::kNotReady;
  }
  void write_directions(Trainable& model, const std::vector<Tensor>& directions) override;
  /// Resets the history, because a path that contains a predicted change is not straight.
  void follow(Trainable&, const std::vector<Tensor>&, double) override {
    *this = LinearPredictor(interval_);
  }
  void save(State& state) const override {
    state.integers["phases.linear.updates"] = updates_;
    save_tensors(state, "phases.linear.weights", last_weights_);
    for (std::size_t k = 0; k < kChanges; ++k) {
      const bool written = updates_ > interval_ * static_cast<std::int64_t>(kChanges - k);
      save_tensors(state, concat("phases.linear.change", k),
                   written ? changes_[k] : std::vector<Tensor>());
    }
  }
  void load(const State& state, Trainable& model) override;

 private:
  static constexpr std::size_t kChanges = 3;
  std::int64_t interval_;
  std::int64_t updates_ = 0;               // updates since the first observed one
  std::vector<Tensor> last_weights_;       // weights at the last multiple of the interval
  std::vector<Tensor> changes_[kChanges];  // oldest first
};

void LinearPredictor::observe(Trainable& model) {
  if (updates_++ % interval_ != 0) return;
  if (last_weights_.empty()) {
    last_weights_ = model.weights().empty_like_weights(MemoryKind::kPredictor);
    for (auto& change : changes_)
      change = model.weights().empty_like_weights(MemoryKind::kPredictor);
  } else {
    std::rotate(std::begin(changes_), std::begin(changes_) + 1, std::end(changes_));
    const std::vector<Tensor>& change = changes_[kChanges - 1];
    model.weights().copy_weights(change);
    for (std::size_t i = 0; i < change.size(); ++i)
      kernels::axpy(change[i], change[i], -1.0f, last_weights_[i], model.stream());
  }
  model.weights().copy_weights(last_weights_);
}

void LinearPredictor::write_directions(Trainable& model, const std::vector<Tensor>& directions) {
  const auto& [oldest, middle, newest] = changes_;
  for (std::size_t i = 0; i < directions.size(); ++i) {
    const double size = model.weights().wait_for_dot(oldest[i], oldest[i]);
    const double kept = size > 0 ? model.weights().wait_for_dot(newest[i], oldest[i]) / size : 0;
    const double gain = std::clamp(kept, 0.0, 1.0) / static_cast<double>(interval_);
    const auto ends = static_cast<float>(0.3 * gain), center = static_cast<float>(0.4 * gain);
    model.weights().write_direction(directions[i], {oldest[i], middle[i], newest[i]},
                                    {ends, center, ends});
  }
}

void LinearPredictor::load(const State& state, Trainable& model) {
  const Stream& stream = model.stream();
  updates_ = state.integer("phases.linear.updates");
  last_weights_ = load_tensors(state, "phases.linear.weights", MemoryKind::kPredictor, stream);
  for (std::size_t k = 0; k < kChanges; ++k) {
    auto& change = changes_[k];
    change = load_tensors(state, concat("phases.linear.change", k), MemoryKind::kPredictor, stream);
    for (std::size_t i = change.size(); i < last_weights_.size(); ++i)
      change.push_back(Tensor::empty_like(last_weights_[i], MemoryKind::kPredictor, stream));
  }
}

/// Extrapolates the mean weights of windows of updates, which are nearly on a line. The direction
/// is the mean of the last complete window minus the mean of the one before, per update. Live
/// weights move along it and keep their noise. Each tensor is scaled by clip(<D2, D1>/<D1, D1>, 0,
/// 1), as in LinearPredictor. Memory: three tensors of the weights' size, stored with the
/// directions. Source: Extra-Merge, arXiv 2605.26484.
class MergedPredictor final : public Predictor {
 public:
  /// A window has `steps` updates, of which every `interval`th is sampled.
  MergedPredictor(std::int64_t steps, std::int64_t interval)
      : interval_(interval), samples_per_window_(std::max<std::int64_t>(1, steps / interval)) {}
  void observe(Trainable& model) override {
    if (updates_++ % interval_ != 0) return;
    for (auto* kept : {&sum_, &mean_, &change_}) {
      if (kept->empty()) *kept = model.weights().empty_directions();
    }
    const float share = 1.0f / static_cast<float>(samples_per_window_);
    model.weights().add_weights(sum_, samples_ == 0 ? 0.0f : 1.0f, share);
    if (++samples_ == samples_per_window_) end_window(model);
  }
  Readiness readiness() const override {
    return windows_ >= 3 ? Readiness::kReady : Readiness::kNotReady;
  }
  void write_directions(Trainable& model, const std::vector<Tensor>& directions) override {
    const auto updates = static_cast<double>(samples_per_window_ * interval_);
    for (std::size_t i = 0; i < directions.size(); ++i)
      model.weights().write_direction(directions[i], {change_[i]},
                                      {static_cast<float>(kept_[i] / updates)});
  }
  void follow(Trainable& model, const std::vector<Tensor>& directions, double length) override;
  void save(State& state) const override;
  void load(const State& state, Trainable& model) override {
    updates_ = state.integer("phases.merged.updates");
    samples_ = state.integer("phases.merged.looks");
    windows_ = state.integer("phases.merged.stretches");
    kept_ = state.reals_of("phases.merged.kept");
    if (updates_ == 0) return;
    sum_ = load_directions(state, "phases.merged.sum", model);
    mean_ = load_directions(state, "phases.merged.mean", model);
    change_ = load_directions(state, "phases.merged.change", model);
  }

 private:
  void end_window(Trainable& model);
  double sampled_share() const {  // sampled share of the current window
    return static_cast<double>(samples_) / static_cast<double>(samples_per_window_);
  }

  std::int64_t interval_, samples_per_window_;
  std::int64_t updates_ = 0, samples_ = 0, windows_ = 0;
  std::vector<Tensor> sum_;     // sum of the current window / number of a complete window's samples
  std::vector<Tensor> mean_;    // mean of the last complete window
  std::vector<Tensor> change_;  // change between the last two means
  std::vector<double> kept_;    // remaining share of the previous change, per tensor
};

void MergedPredictor::end_window(Trainable& model) {
  samples_ = 0;
  ++windows_;
  if (windows_ >= 2) {
    kept_.assign(sum_.size(), 1.0);
    for (std::size_t i = 0; i < sum_.size(); ++i) {
      model.weights().write_direction(mean_[i], {mean_[i], sum_[i]}, {-1.0f, 1.0f});
      if (windows_ == 2) continue;
      const double size = model.weights().wait_for_dot(change_[i], change_[i]);
      const double left = size > 0 ? model.weights().wait_for_dot(mean_[i], change_[i]) / size : 0;
      kept_[i] = std::clamp(left, 0.0, 1.0);
    }
    std::swap(mean_, change_);
  }
  std::swap(sum_, mean_);
}

void MergedPredictor::follow(Trainable& model, const std::vector<Tensor>& directions,
                             double length) {
  if (length == 0) return;  // 0 times a non-finite direction is not 0
  const auto move = [&](const std::vector<Tensor>& kept, double by) {
    for (std::size_t i = 0; i < kept.size(); ++i)
      model.weights().write_direction(kept[i], {kept[i], directions[i]},
                                      {1.0f, static_cast<float>(by)});
  };
  if (samples_ > 0) move(sum_, length * sampled_share());
  if (windows_ > 0) move(mean_, length);
}

void MergedPredictor::save(State& state) const {
  state.integers["phases.merged.updates"] = updates_;
  state.integers["phases.merged.looks"] = samples_;
  state.integers["phases.merged.stretches"] = windows_;
  state.series["phases.merged.kept"] = kept_;
  const auto save_if = [&](bool written, const char* name, const std::vector<Tensor>& tensors) {
    save_tensors(state, name, written ? tensors : std::vector<Tensor>());
  };
  save_if(samples_ > 0, "phases.merged.sum", sum_);
  save_if(windows_ > 0, "phases.merged.mean", mean_);
  save_if(windows_ > 1, "phases.merged.change", change_);
}

/// Momentum on two timescales: (1 − share) times the optimizer's next update from its moments, plus
/// share times an exponential mean of past weight changes with a time constant of `steps` updates,
/// which averages out noise and oscillations.
///
/// This slow mean comes from an exponential mean e of the weights w, one tensor stored with the
/// directions and updated every `interval` updates with g = exp(−interval/steps), so w − e = Σ
/// g^j·(change over the interval j samples ago). The slow mean is w − e divided by the sum of the
/// factors g^j, in updates. It is exact on a straight path. Source: AdEMAMix, Pagliardini, Ablin &
/// Grangier 2024.
class TwoTimescalePredictor final : public Predictor {
 public:
  TwoTimescalePredictor(std::int64_t steps, std::int64_t interval, double share)
      : steps_(steps), interval_(interval), share_(share) {}
  void observe(Trainable& model) override;
  Readiness readiness() const override {
    return updates_ > std::max(steps_, interval_) ? Readiness::kReady : Readiness::kNotReady;
  }
  void write_directions(Trainable& model, const std::vector<Tensor>& directions) override;
  void follow(Trainable& model, const std::vector<Tensor>& directions, double length) override {
    if (length == 0) return;  // 0 times a non-finite direction is not 0
    for (std::size_t i = 0; i < mean_.size(); ++i)
      model.weights().write_direction(mean_[i], {mean_[i], directions[i]},
                                      {1, static_cast<float>(length)});
  }
  void save(State& state) const override {
    state.integers["phases.two_timescale.updates"] = updates_;
    save_tensors(state, "phases.two_timescale.mean", mean_);
  }
  void load(const State& state, Trainable& model) override {
    updates_ = state.integer("phases.two_timescale.updates");
    if (updates_ > 0) mean_ = load_directions(state, "phases.two_timescale.mean", model);
  }

 private:
  double kept() const;     // g
  double updates() const;  // number of updates that w − e spans

  std::int64_t steps_, interval_;
  double share_;
  std::int64_t updates_ = 0;
  std::vector<Tensor> mean_;
};

double TwoTimescalePredictor::kept() const {
  return std::exp(-static_cast<double>(interval_) / static_cast<double>(steps_));
}

double TwoTimescalePredictor::updates() const {
  const std::int64_t since_first = updates_ - 1;
  const auto looks = static_cast<double>(since_first / interval_);
  const double g = kept(), factors = g * (1 - std::pow(g, looks)) / (1 - g);
  return static_cast<double>(interval_) * factors + static_cast<double>(since_first % interval_);
}

void TwoTimescalePredictor::observe(Trainable& model) {
  const bool first = updates_ == 0;
  if (updates_++ % interval_ != 0) return;
  if (mean_.empty()) mean_ = model.weights().empty_directions();
  const auto g = static_cast<float>(first ? 0 : kept());
  model.weights().add_weights(mean_, g, 1 - g);
}

void TwoTimescalePredictor::write_directions(Trainable& model,
                                             const std::vector<Tensor>& directions) {
  const double slow = share_ / updates();
  model.weights().write_momentum_directions(directions);
  for (std::size_t i = 0; i < directions.size(); ++i) {
    model.weights().write_direction(directions[i], {directions[i], mean_[i]},
                                    {static_cast<float>(1 - share_), static_cast<float>(-slow)});
  }
  model.weights().add_weights(directions, 1, static_cast<float>(slow));
}

/// A control: each tensor's direction is random with the norm of the momentum's direction, to show
/// the gain of an arbitrary move. Memory: one tensor at a time on the host.
class RandomPredictor final : public Predictor {
 public:
  RandomPredictor() : host_(MemoryPool::create("host")) {}
  Readiness readiness() const override { return Readiness::kReady; }
  void write_directions(Trainable& model, const std::vector<Tensor>& directions) override;
  void save(State& state) const override { state.integers["phases.random.drawn"] = drawn_; }
  void load(const State& state, Trainable&) override {
    drawn_ = state.integer("phases.random.drawn");
  }

 private:
  Stream host_;
  std::int64_t drawn_ = 0;  // number of generated sets of directions
};

constexpr std::uint64_t kPlaceboSeed = 11;

void RandomPredictor::write_directions(Trainable& model, const std::vector<Tensor>& directions) {
  model.weights().write_momentum_directions(directions);
  ++drawn_;
  if (model.stream().device().simulated) return;
  for (std::size_t i = 0; i < directions.size(); ++i) {
    const Tensor& direction = directions[i];
    const double length = std::sqrt(model.weights().wait_for_dot(direction, direction));
    const Tensor drawn = Tensor::empty_like(direction, MemoryKind::kPredictor, host_);
    const RandomKey key{kPlaceboSeed, static_cast<std::uint64_t>(drawn_), i};
    double squares = 0;
    for (std::int64_t k = 0; k < drawn.elements(); ++k) {
      const float value = random_normal(key, static_cast<std::uint64_t>(k));
      drawn.data<float>()[k] = value;
      squares += static_cast<double>(value) * value;
    }
    const auto scale = static_cast<float>(length / std::sqrt(squares));
    for (std::int64_t k = 0; k < drawn.elements(); ++k) drawn.data<float>()[k] *= scale;
    wait_for_copy(direction, drawn, model.stream());
  }
}

/// A control in which Predict runs but weights do not change.
class ZeroPredictor final : public Predictor {
 public:
  Readiness readiness() const override { return Readiness::kChangesNothing; }
  void write_directions(Trainable&, const std::vector<Tensor>&) override {}
};

/// The optimizer's next step from its moments only, which are means of past gradients.
class MomentumPredictor : public Predictor {
 public:
  Readiness readiness() const override { return Readiness::kReady; }
  void write_directions(Trainable& model, const std::vector<Tensor>& directions) override {
    model.weights().write_momentum_directions(directions);
  }
};

using Made = std::unique_ptr<Predictor>;
struct Row {
  const char* name;
  Made (*make)(const SkipBackwardConfig& config);
};

const Row kPredictors[] = {
    {"momentum",
     [](const SkipBackwardConfig&) -> Made { return std::make_unique<MomentumPredictor>(); }},
    {"linear",
     [](const SkipBackwardConfig& config) -> Made {
       return std::make_unique<LinearPredictor>(config.history_interval);
     }},
    {"two_timescale",
     [](const SkipBackwardConfig& config) -> Made {
       return std::make_unique<TwoTimescalePredictor>(config.slow_steps, config.history_interval,
                                                      config.slow_share);
     }},
    {"merged",
     [](const SkipBackwardConfig& config) -> Made {
       return std::make_unique<MergedPredictor>(config.slow_steps, config.history_interval);
     }},
    {"random",
     [](const SkipBackwardConfig&) -> Made { return std::make_unique<RandomPredictor>(); }},
    {"zero", [](const SkipBackwardConfig&) -> Made { return std::make_unique<ZeroPredictor>(); }},
};

}  // namespace

const std::vector<std::string>& predictor_names() {
  static const std::vector<std::string> names = names_of(kPredictors);
  return names;
}

std::unique_ptr<Predictor> make_predictor(const SkipBackwardConfig& config) {
  return named_row(kPredictors, "phases.skip_backward.predictor", config.predictor).make(config);
}

}  // namespace hybrid_trainer
