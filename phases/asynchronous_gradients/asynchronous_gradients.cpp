#include <deque>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "phases/asynchronous_gradients/delayed_gradients.h"
#include "phases/method.h"
#include "phases/phase_parts.h"
#include "src/distributed/delayed_sum.h"
#include "src/optim/predicted_weights.h"

namespace hybrid_trainer {

namespace {

double wait_for_distance(const Tensor& x, const Tensor& y, const Stream& stream) {
  const Tensor difference = Tensor::empty_like(x, MemoryKind::kWorkspace, stream);
  kernels::axpy(difference, x, -1, y, stream);
  return kernels::wait_for_sum_of_squares(difference, stream);
}

constexpr const char* kClipScale = "trainer.expected_clip_scale";

/// Asynchronous gradients: summing a step's gradient over ranks overlaps with the next steps, and
/// the exact update is `lag` steps late. Step counts determine the sum that each step uses, so
/// results do not depend on the link. All decisions use sums over all ranks; prediction errors are
/// sent with the next gradient.
///
/// With sharded weights, each rank sums, updates and predicts its shards, and predicted weights are
/// gathered like updated ones, so all ranks compute with the same weights. The next step needs the
/// weights first and the gradient sum later, so a step sends the weights first.
class AsynchronousGradients final : public PendingWork, public DelayedGradients {
 public:
  /// The engine's optimizer updates all weights, or this rank's shards of them. Throws OutOfMemory.
  explicit AsynchronousGradients(const PendingSetup& setup);

  /// Predictions ignore a gradient with a non-finite norm. Throws OutOfMemory.
  double wait_for_own_gradient(const Batch& batch) override {
    const GradientMeasurement own = engine_.wait_for_own_gradient(batch);
    send(own.loss * engine_.own_share(batch), own.norm);
    return own.loss;
  }
  std::optional<GradientMeasurement> wait_for_gradient(bool all) override;
  ArrivedUpdate apply(bool finite) override;
  void predict_weights() override;
  void wait_for_exact_weights() override;

  /// Predictions assume that pending updates are clipped like the last one.
  void observe_update(float scale) override { clip_scale_ = scale; }
  void drop() override;
  /// Collective if weights are sharded. In that case, the predicted weights are restored after
  /// Diverged, which all ranks throw, but not after other errors, which may occur on one rank only.
  void with_exact(const std::function<void()>& use) override;
  std::optional<bool> vote_to_stop(bool requests_stop) override {
    if (pending_steps_.empty()) return {};
    requests_stop_ = requests_stop;
    return stop_requested_;
  }
  void save(State& state) const override {
    state.reals[kClipScale] = static_cast<double>(clip_scale_);
  }
  void load(const State& state) override {
    if (state.reals.contains(kClipScale)) clip_scale_ = static_cast<float>(state.real(kClipScale));
  }

 private:
  /// Contents of a rank's message about a step.
  enum MessageField { kLoss, kStops, kMissed, kMoved };
  struct PendingStep {
    Tensor own;   // this rank's gradient; only its shards if sharded
    Tensor sent;  // values to sum, until the sum begins
    std::vector<double> scalars{};
    DelayedSum sum{};
    bool is_finite = true;
    double learning_rate = 0;
    Tensor before{}, predicted{};  // slices of the weights without and with its update
  };
  void send(double loss, double norm);
  void begin_sums() {
    for (PendingStep& pending_step : pending_steps_) {
      if (!pending_step.sent) continue;
      const Tensor sent = std::exchange(pending_step.sent, {});
      Communicator& ranks = sums_.ranks();
      pending_step.sum = !has_parts_ ? DelayedSum(sent, pending_step.scalars, ranks, stream_)
                                     : DelayedSum(sent, sums_.shared_elements(),
                                                  pending_step.scalars, ranks, stream_);
    }
  }
  void measure_prediction(const PendingStep& arrived);
  void exchange_whole_weights() {
    weights_.exchange_values();
    engine_.publish_weights();
    engine_.send_weights();
  }

  const std::int64_t delay_;
  const double clip_norm_;
  Engine& engine_;
  GradientSums& sums_;
  const bool has_parts_;
  const std::vector<Parameter*>& parameters_;  // updated by this rank
  const Stream& stream_;
  PredictedWeights weights_;
  std::deque<PendingStep> pending_steps_;  // oldest first
  std::optional<PendingStep> arrived_;
  double arrived_norm_ = 0;
  float clip_scale_ = 1;           // clipping factor of the last update
  double missed_ = 0, moved_ = 0;  // squared error and change of the last update on this rank
  std::optional<double> error_{};  // relative error over all ranks
  std::string worst_weight_{};     // weight with the largest error on this rank
  bool requests_stop_ = false, stop_requested_ = false;
};

AsynchronousGradients::AsynchronousGradients(const PendingSetup& setup)
    : delay_(setup.phases.asynchronous_gradients.delay),
      clip_norm_(setup.optimizer.clip_norm),
      engine_(setup.engine),
      sums_(engine_.sums()),
      has_parts_(engine_.has_parts()),
      parameters_(engine_.parameters()),
      stream_(engine_.stream()),
      weights_(setup.optimizer, parameters_, engine_.optimizer(),
               {.device_side = setup.phases.asynchronous_gradients.device_side,
                .share = engine_.own_share(),
                .in_same_memory = has_parts_},
               stream_) {}

/// Starts to sum this rank's gradient over all ranks. If weights are sharded, the sum begins after
/// the weights are predicted. `loss` is this rank's contribution to the mean over all ranks.
void AsynchronousGradients::send(double loss, double norm) {
  weights_.begin();
  PendingStep pending_step;
  const Tensor whole = sums_.take();
  if (has_parts_) {
    pending_step.own = sums_.own_parts_of(whole);
    pending_step.sent = whole;
  } else {
    pending_step.own = whole;
    pending_step.sent = Tensor::empty_like(whole, MemoryKind::kGradients, stream_);
    copy(pending_step.sent, whole, stream_);
  }
  pending_step.scalars = {loss, requests_stop_ ? 1.0 : 0.0, std::exchange(missed_, 0),
                          std::exchange(moved_, 0)};
  pending_step.is_finite = std::isfinite(norm) && std::isfinite(loss);
  pending_step.learning_rate = engine_.learning_rate();
  pending_steps_.push_back(std::move(pending_step));
  if (!has_parts_) begin_sums();
}

std::optional<GradientMeasurement> AsynchronousGradients::wait_for_gradient(bool all) {
  if (all) begin_sums();  // for a step that ended before its prediction
  const std::size_t stays = all ? 0 : static_cast<std::size_t>(delay_);
  if (pending_steps_.size() <= stays) return {};
  arrived_ = std::move(pending_steps_.front());
  pending_steps_.pop_front();
  DelayedSum& sum = arrived_->sum;
  const Tensor total = sum.wait();
  sums_.show(!has_parts_ ? total : sums_.own_parts_of(total));
  stop_requested_ |= sum.sum_of(kStops) > 0;
  const double missed = sum.sum_of(kMissed), moved = sum.sum_of(kMoved);
  error_.reset();
  if (moved > 0) error_ = std::sqrt(missed / moved);
  arrived_norm_ = !has_parts_ ? wait_for_norm(gradient_square_sums(parameters_, stream_), stream_)
                              : std::sqrt(sum.sum_of_squares());
  return GradientMeasurement{.loss = sum.sum_of(kLoss), .norm = arrived_norm_};
}

ArrivedUpdate AsynchronousGradients::apply(bool finite) {
  if (finite) {
    const float scale = clip_scale(arrived_norm_, clip_norm_);
    weights_.with_exact([&] {
      engine_.optimizer().step(static_cast<float>(arrived_->learning_rate), scale, stream_);
    });
    clip_scale_ = scale;
    measure_prediction(*arrived_);
  }
  arrived_.reset();
  sums_.free();
  return {error_, worst_weight_, true, static_cast<std::int64_t>(pending_steps_.size())};
}

void AsynchronousGradients::measure_prediction(const PendingStep& arrived) {
  if (!arrived.predicted) return;
  const Tensor now = weights_.slices(true);
  double worst = 0;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::int64_t elements = weights_.slice_elements()[i];
    if (elements == 0) continue;  // not on this rank
    const auto slice = [&](const Tensor& all) { return all.rows(first, first + elements); };
    const double scale =
        static_cast<double>(parameters_[i]->elements()) / static_cast<double>(elements);
    const double missed = scale * wait_for_distance(slice(arrived.predicted), slice(now), stream_);
    const double moved = scale * wait_for_distance(slice(arrived.before), slice(now), stream_);
    missed_ += missed;
    moved_ += moved;
    if (missed > worst * moved) {
      worst = missed / moved;
      worst_weight_ = parameters_[i]->name();
    }
    first += elements;
  }
}

void AsynchronousGradients::predict_weights() {
  std::vector<OwnGradient> gradients;
  for (const PendingStep& pending_step : pending_steps_) {
    if (!pending_step.is_finite) continue;  // its update will be skipped
    gradients.push_back({[this, own = pending_step.own](const Parameter& parameter) {
                           return sums_.part_of(own, parameter);
                         },
                         static_cast<float>(pending_step.learning_rate), clip_scale_});
  }
  weights_.predict(gradients);
  pending_steps_.back().before = weights_.slices(true);
  pending_steps_.back().predicted = weights_.slices(false);
  if (!has_parts_) return;
  engine_.publish_weights();
  engine_.send_weights();
  begin_sums();
}

void AsynchronousGradients::with_exact(const std::function<void()>& use) {
  if (!has_parts_ || !weights_.are_in_place()) return weights_.with_exact(use);
  exchange_whole_weights();
  try {
    use();
  } catch (const Diverged&) {
    exchange_whole_weights();
    throw;
  }
  exchange_whole_weights();
}

void AsynchronousGradients::wait_for_exact_weights() {
  require(pending_steps_.empty(), "wait for pending gradients first");
  arrived_.reset();
  sums_.free();
  sums_.keep_local(false);
  const bool were_in_place = weights_.are_in_place();
  weights_.end();
  if (has_parts_ && were_in_place) engine_.publish_weights();
  stop_requested_ = false;
  missed_ = moved_ = 0;
}

void AsynchronousGradients::drop() {
  while (wait_for_gradient(true)) sums_.free();
  wait_for_exact_weights();
}

/// Asynchronous gradients: a step of Predict uses only this rank's gradient. The gradient and loss
/// of all ranks are checked, applied and reported when they arrive; until then, the loss is local.
class AsynchronousGradientsMethod final : public Method {
 public:
  using Method::Method;
  static const std::vector<Refusal>& refusals();
  static std::string text(const PhaseConfig& config) {
    const AsynchronousGradientsConfig& group = config.asynchronous_gradients;
    return concat(" with asynchronous gradients ", group.delay,
                  group.delay == 1 ? " step" : " steps", " late, device_side=", group.device_side,
                  " predicts updates");
  }
  static std::unique_ptr<PendingWork> make_pending(const PendingSetup& setup) {
    return std::make_unique<AsynchronousGradients>(setup);
  }
  static MethodTraits traits(const PhaseConfig& config) {
    const std::int64_t delay = config.asynchronous_gradients.delay;
    return {.runs_ahead_of_ranks = true, .delay = delay, .steps_to_fill_memory = delay + 2};
  }

  void predict(const Batch& batch, PhaseOutcome& outcome) override;
  void drain(PhaseOutcome& outcome) override;

 private:
  DelayedGradients& gradients() const {
    return dynamic_cast<DelayedGradients&>(parts_.model.pending());
  }
};

const std::vector<Refusal>& AsynchronousGradientsMethod::refusals() {
  static const std::vector<Refusal> rows = [] {
    std::vector<Refusal> all = refusals_ahead_of_ranks();
    all.push_back({{"distributed.zero"},
                   {"0", "1"},
                   "each rank needs its complete gradient and complete weights"});
    all.push_back({{"phases.asynchronous_gradients.device_side"},
                   {"anticipated", "shared", "momentum", "none"},
                   "it applies only to phases.method asynchronous_optimizer"});
    return all;
  }();
  return rows;
}

void AsynchronousGradientsMethod::predict(const Batch& batch, PhaseOutcome& outcome) {
  const AsynchronousGradientsConfig& group = parts_.config().asynchronous_gradients;
  if (parts_.steps_in_phase == 0)
    add_event(outcome, concat("other ranks' gradients arrive ", group.delay,
                              group.delay == 1 ? " step" : " steps", " late, for at most ",
                              parts_.config().max_predict_steps, " steps"));
  DelayedGradients& gradients = this->gradients();
  outcome.loss = gradients.wait_for_own_gradient(batch);
  outcome.cost += 1;
  if (const auto arrived = gradients.wait_for_gradient(false)) {
    update(parts_, *arrived, outcome, [&](bool applies) {
      judge_update(parts_, gradients.apply(applies),
                   {group.prediction_error_limit, group.forecasts_updates()}, outcome);
    });
  }
  gradients.predict_weights();
}

/// Applies all pending updates, even if one of them ends the run.
void AsynchronousGradientsMethod::drain(PhaseOutcome& outcome) {
  DelayedGradients& gradients = this->gradients();
  std::optional<Diverged> end;
  while (const auto arrived = gradients.wait_for_gradient(true)) {
    try {
      update(parts_, *arrived, outcome, [&](bool applies) { gradients.apply(applies); });
    } catch (const Diverged& error) {
      end = error;
    }
  }
  gradients.wait_for_exact_weights();
  if (end) throw Diverged(*end);
}

}  // namespace

MethodRow asynchronous_gradients_row() {
  return row_of<AsynchronousGradientsMethod>("asynchronous_gradients");
}

}  // namespace hybrid_trainer
