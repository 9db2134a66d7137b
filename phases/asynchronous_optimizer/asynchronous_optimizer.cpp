#include "phases/asynchronous_optimizer/delayed_optimizer.h"
#include "phases/method.h"
#include "phases/phase_parts.h"
#include "src/core/profile.h"

namespace hybrid_trainer {

namespace {

/// Delayed updates by a SpeculativeOptimizer, clipped and at the schedule's rates.
class AsynchronousOptimizer final : public PendingWork, public DelayedOptimizer {
 public:
  explicit AsynchronousOptimizer(const PendingSetup& setup)
      : engine_(setup.engine),
        optimizer_(dynamic_cast<SpeculativeOptimizer&>(engine_.optimizer())),
        report_(setup.report) {}
  ArrivedUpdate wait_for_update(bool finite) override;
  void wait_for_exact_weights() override { optimizer_.wait_for_exact_weights(engine_.stream()); }

  /// Updates stay synchronous if memory is too short for pending ones.
  void enter_predict() override {
    try {
      optimizer_.begin_lag(engine_.rates_from(0), engine_.stream());
    } catch (const OutOfMemory& error) {
      report_(concat("updates are not delayed: ", error.what()));
    }
  }
  void drop() override { wait_for_exact_weights(); }
  std::optional<SpeculationUse> use() const override { return optimizer_.use(); }
  void save(State& state) const override { optimizer_.save_delayed(state); }
  void load(const State& state) override {
    optimizer_.load_delayed(state, engine_.rates_from(0), engine_.stream());
  }

 private:
  Engine& engine_;
  SpeculativeOptimizer& optimizer_;
  const std::function<void(const std::string&)> report_;
};

ArrivedUpdate AsynchronousOptimizer::wait_for_update(bool finite) {
  if (!optimizer_.is_delayed()) {
    if (finite) engine_.apply_gradient();
    return {};
  }
  if (finite) engine_.finish_batch();
  const StepPartTimer timer(engine_.stream(), StepPart::kUpdate);
  return optimizer_.wait_for_delayed_step(
      {.finite = finite,
       .learning_rate = static_cast<float>(engine_.learning_rate()),
       .gradient_scale = engine_.update_scale(),
       .future_rates = engine_.rates_from(1)},
      engine_.stream());
}

/// A step of Predict computes a gradient as in Full, but does not wait for its exact update.
class AsynchronousOptimizerMethod final : public Method {
 public:
  using Method::Method;
  static const std::vector<Refusal>& refusals();
  static std::string text(const PhaseConfig& config) {
    const AsynchronousOptimizerConfig& group = config.asynchronous_optimizer;
    return concat(" with an asynchronous optimizer: updates arrive ", group.delay,
                  group.delay == 1 ? " step" : " steps", " late, device_side=", group.device_side,
                  " predicts them, exact state in ",
                  group.exact_state == "host" ? "host memory" : "a file");
  }
  static std::unique_ptr<PendingWork> make_pending(const PendingSetup& setup) {
    return std::make_unique<AsynchronousOptimizer>(setup);
  }
  static std::unique_ptr<Optimizer> make_optimizer(const OptimizerSetup& setup) {
    const AsynchronousOptimizerConfig& group = setup.phases.asynchronous_optimizer;
    const SpeculationSettings settings{.lag = group.delay,
                                       .device_side = group.device_side,
                                       .worker_threads = static_cast<int>(group.worker_threads),
                                       .gradient_bits = setup.gradient_bits};
    return make_speculative_optimizer(setup.optimizer, setup.parameters, settings, setup.stream,
                                      setup.host.pool(), setup.home);
  }
  static MethodTraits traits(const PhaseConfig& config) {
    const std::int64_t delay = config.asynchronous_optimizer.delay;
    return {.delays_updates = true, .delay = delay, .steps_to_fill_memory = delay + 2};
  }

  void predict(const Batch& batch, PhaseOutcome& outcome) override {
    const GradientMeasurement measurement = parts_.model.wait_for_gradient(batch);
    const AsynchronousOptimizerConfig& group = parts_.config().asynchronous_optimizer;
    outcome.cost += 1;
    update(parts_, measurement, outcome, [&](bool applies) {
      judge_update(parts_, optimizer().wait_for_update(applies),
                   {group.prediction_error_limit, group.forecasts_updates()}, outcome);
    });
  }
  void enter_correct(PhaseOutcome&) override {
    optimizer().wait_for_exact_weights();
    parts_.enter_model(Phase::kCorrect);
  }

 private:
  DelayedOptimizer& optimizer() const {
    return dynamic_cast<DelayedOptimizer&>(parts_.model.pending());
  }
};

const std::vector<Refusal>& AsynchronousOptimizerMethod::refusals() {
  const char* const elsewhere =
      "phases.asynchronous_optimizer.exact_state sets the location of masters and state";
  const char* const in_16_bits =
      "memory.gradient_bits 16 stores pending updates in bf16 and does not support this value";
  const std::string device_side = "phases.asynchronous_optimizer.device_side";
  const std::vector<KeyTest> rounds{{"memory.gradient_bits", Kind::kIsOneOf, {"16"}}};
  const std::vector<std::string> optimizers{"optimizer.name", "optimizer.groups[].name"};
  static const std::vector<Refusal> rows{
      {{"memory.optimizer_state", "memory.weights"}, {"device"}, elsewhere},
      {{"memory.device_map"}, {""}, elsewhere},
      {{"memory.gradients"}, {"keep"}, elsewhere},
      {{"optimizer.paged"}, {"false"}, elsewhere},
      {.keys = {"phases.asynchronous_optimizer.delay"},
       .values = {"1"},
       .why = in_16_bits,
       .when = rounds,
       .wanted = "1, or memory.gradient_bits 32"},
      {.keys = {device_side},
       .values = {"anticipated", "none"},
       .why = in_16_bits,
       .when = rounds,
       .wanted = "anticipated or none, or memory.gradient_bits 32"},
      {.keys = optimizers,
       .values = {"lion"},
       .why = in_16_bits,
       .kind = Kind::kIsNoneOf,
       .when = rounds,
       .wanted = "adamw or muon, or memory.gradient_bits 32"},
      {{device_side},
       {"anticipated", "sketch", "selective", "none"},
       "it applies only to phases.method asynchronous_gradients"},
      {{"optimizer.slow_momentum"},
       {"0"},
       "it needs each update immediately, but these updates are delayed"},
      {{"training.average_weights"}, {"0"}, "updates do not run on the device"},
      {{"optimizer.state_bits", "optimizer.groups[].state_bits"},
       {"32"},
       "the exact state always has 32 bits"},
      {optimizers,
       {"adamw", "lion", "muon"},
       "the updates of other optimizers cannot be predicted"},
      {{"learning_rate_finder.mode"},
       {"off"},
       "a probe moves master weights on the device, and there are none"},
      {.keys = {"stages[].precision", "stages[].orthogonalization_period"},
       .values = {},
       .why = "delayed updates use the same setting for the whole run",
       .wanted = "none: leave it out"},
      refusal_of_prediction_recoveries(),
      {.keys = {"phases.method"},
       .values = {"asynchronous_optimizer"},
       .why = "ranks cannot share its exact state",
       .kind = Kind::kIsNoneOf,
       .when = {{"ranks", Kind::kIsMoreThan, {"0"}}},
       .wanted = "skip_backward, asynchronous_gradients or local_sgd"},
  };
  return rows;
}

}  // namespace

MethodRow asynchronous_optimizer_row() {
  return row_of<AsynchronousOptimizerMethod>("asynchronous_optimizer");
}

}  // namespace hybrid_trainer
