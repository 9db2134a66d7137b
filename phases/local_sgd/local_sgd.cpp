
#include "hybrid_trainer/kernels/elementwise.h"
#include "phases/local_sgd/local_training.h"
#include "phases/method.h"
#include "phases/phase_parts.h"
#include "src/distributed/delayed_sum.h"

namespace hybrid_trainer {

namespace {

Tensor part_of(const Tensor& tensor, const Shard& elements) {
  return tensor.view({tensor.elements()}).rows(elements.first, elements.last);
}

/// Weights concatenated in one tensor, in the layout of their gradients.
class FlatWeights {
 public:
  FlatWeights(const std::vector<Parameter*>& weights, const GradientSums& layout,
              const Stream& stream)
      : weights_(weights), layout_(layout), stream_(stream) {}
  Shard all() const { return {0, layout_.elements()}; }
  Tensor zeros(std::int64_t elements) const {
    return Tensor::zeros({elements}, DType::kF32, MemoryKind::kPredictor, stream_);
  }
  void read(const Tensor& values, const Shard& elements) const;
  void write(const Tensor& values, const Shard& elements) const;

 private:
  template <class Call>
  void for_each_part(const Shard& elements, const Call& call) const;
  const std::vector<Parameter*>& weights_;
  const GradientSums& layout_;
  const Stream& stream_;
};

/// Calls call(weight, range in the weight, range in `elements`) for each weight in `elements`.
template <class Call>
void FlatWeights::for_each_part(const Shard& elements, const Call& call) const {
  for (Parameter* const weight : weights_) {
    const std::int64_t start = layout_.first_element(*weight);
    const std::int64_t first = std::max(start, elements.first),
                       last = std::min(start + weight->elements(), elements.last);
    if (first >= last) continue;
    call(*weight, Shard{first - start, last - start},
         Shard{first - elements.first, last - elements.first});
  }
}

void FlatWeights::read(const Tensor& values, const Shard& elements) const {
  for_each_part(elements,
                [&](const Parameter& weight, const Shard& of_weight, const Shard& of_values) {
                  const Weight master = weight.acquire_master(stream_);
                  copy(part_of(values, of_values), part_of(master.tensor(), of_weight), stream_);
                });
}

void FlatWeights::write(const Tensor& values, const Shard& elements) const {
  for_each_part(elements, [&](Parameter& weight, const Shard& of_weight, const Shard& of_values) {
    const bool is_all = of_weight.elements() == weight.elements();
    {
      const Weight master = weight.acquire_master(stream_, is_all ? Use::kWrite : Use::kChange);
      copy(part_of(master.tensor(), of_weight), part_of(values, of_values), stream_);
    }
    weight.refresh_compute_copy(stream_);
  });
}

/// Local SGD: each rank trains independently, and every H steps (phases.local_sgd.steps) the ranks
/// exchange weight deltas. The mean of the deltas over ranks, Δ = θ − w, is the gradient of a
/// Nesterov step of the common weights θ: u = μ·u + Δ, θ −= η·(Δ + μ·u). Δ arrives `lag` steps
/// after it was sent; the changes that each rank made since then are added to the result. Source:
/// Douillard et al. 2023, "DiLoCo", algorithm 1; overlapping exchanges and fragments: Douillard et
/// al. 2025, "Streaming DiLoCo".
///
/// With F fragments (phases.local_sgd.fragments), each 1/F of the weights is exchanged every H
/// steps. Fragment f is exchanged for the first time (f + 1)·H/F steps after Predict began. With
/// exchange_bits below 32, an exchange is a QuantizedSum. At the end of Predict, all ranks have the
/// same θ, the mean of all moments, and the largest step counter.
class LocalSgd final : public PendingWork, public LocalTraining {
 public:
  explicit LocalSgd(const PendingSetup& setup)
      : config_(setup.phases.local_sgd),
        clip_norm_(setup.optimizer.clip_norm),
        engine_(setup.engine),
        sums_(engine_.sums()),
        stream_(engine_.stream()),
        weights_(engine_.parameters(), sums_, stream_),
        momentum_(weights_.zeros(sums_.elements())),
        fragments_(make_fragments()) {}

  /// Runs a step, and begins and ends exchanges that are due. Throws OutOfMemory.
  LocalStep wait_for_step(const Batch& batch) override;
  /// Exchanges the remaining deltas (of fewer than H steps, and rounding errors) in 32 bits, and
  /// moves θ by their mean without changing u. Collective.
  LocalStep wait_for_exact_weights() override;

  void drop() override;
  /// Calls `use` with θ in place of the weights.
  void with_exact(const std::function<void()>& use) override;
  std::optional<bool> vote_to_stop(bool requests_stop) override {
    if (!has_begun()) return {};
    requests_stop_ = requests_stop;
    return stop_requested_;
  }
  void save(State& state) const override;
  void load(const State& state) override;

 private:
  enum MessageField { kSkipped, kSteps, kStops };
  /// A part of the weights that is exchanged separately.
  struct Fragment {
    Shard elements;           // range in all weights
    std::int64_t offset = 0;  // steps before its first exchange
    std::int64_t steps = 0;   // steps since the last exchange began
    std::int64_t next = 0;    // steps after which the next exchange begins
    Tensor sent{};            // this rank's weights when the exchange began
    bool is_final = false;    // the final exchange, at the end of Predict
    std::optional<DelayedSum> exchange{};
    QuantizationErrors errors{};
  };
  bool has_begun() const { return anchor_.defined(); }
  std::vector<Fragment> make_fragments() const;
  void begin();
  /// Updates the weights by the gradient of the mean loss over this rank's micro-batches. Divides the
  /// sum of their gradients by `share`, the share of these micro-batches in the mean over all ranks.
  void update(const GradientMeasurement& own, double share) {
    if (!own.finite()) {
      ++skipped_;
    } else {
      const auto clipped = static_cast<double>(clip_scale(own.norm, clip_norm_));
      engine_.optimizer().step(static_cast<float>(engine_.learning_rate()),
                               static_cast<float>(clipped / share), stream_);
    }
    sums_.free();
  }
  void begin_exchange(Fragment& fragment, bool is_final);
  void finish_exchange(Fragment& fragment, LocalStep& step);
  /// Returns the scalars to send with an exchange. With `of_steps`, includes the statistics of the
  /// steps and resets them; one exchange per round does so.
  std::vector<double> take_scalars(bool of_steps) {
    std::vector<double> scalars{0, 0, requests_stop_ ? 1.0 : 0.0};
    if (!of_steps) return scalars;
    scalars[kSkipped] = std::exchange(skipped_, 0);
    scalars[kSteps] = static_cast<double>(std::exchange(steps_, 0));
    return scalars;
  }
  void receive(const DelayedSum& exchange, LocalStep& step) {
    stop_requested_ |= exchange.sum_of(kStops) > 0;
    step.steps += static_cast<std::int64_t>(exchange.sum_of(kSteps));
    step.skipped += static_cast<std::int64_t>(exchange.sum_of(kSkipped));
  }
  void move_anchor(const Fragment& fragment, const Tensor& mean);
  void average_state();

  const LocalSgdConfig config_;
  const double clip_norm_;
  Engine& engine_;
  GradientSums& sums_;
  const Stream& stream_;
  const FlatWeights weights_;
  // In the layout of `sums_`.
  Tensor anchor_;    // θ
  Tensor momentum_;  // u; kept between Predict phases
  std::vector<Fragment> fragments_;
  std::int64_t since_exchange_ = 0;  // steps since any exchange began
  // Numbers of steps and of skipped updates that are not reported to other ranks yet.
  std::int64_t steps_ = 0;
  double skipped_ = 0;
  bool requests_stop_ = false, stop_requested_ = false;
};

constexpr const char* kMomentum = "outer_momentum.";

/// Returns fragments of equal size, which may split weights: a token table may be most of a model.
std::vector<LocalSgd::Fragment> LocalSgd::make_fragments() const {
  const std::int64_t steps = config_.steps, elements = sums_.elements();
  const std::int64_t count = std::min(config_.fragments, elements);
  std::vector<Fragment> fragments(static_cast<std::size_t>(count));
  for (std::int64_t f = 0; f < count; ++f) {
    Fragment& fragment = fragments[static_cast<std::size_t>(f)];
    fragment.elements = {elements * f / count, elements * (f + 1) / count};
    fragment.offset = (2 * (f + 1) * steps + count) / (2 * count);  // rounded
  }
  return fragments;
}

void LocalSgd::begin() {
  if (has_begun()) return;
  const Tensor anchor = weights_.zeros(sums_.elements());
  weights_.read(anchor, weights_.all());
  for (Fragment& fragment : fragments_) {
    fragment.steps = 0;
    fragment.next = fragment.offset;
    if (config_.exchange_bits == 32) continue;
    fragment.errors = QuantizationErrors(fragment.elements.elements(), config_.exchange_bits,
                                         sums_.ranks(), stream_);
  }
  anchor_ = anchor;
  since_exchange_ = steps_ = 0;
}

LocalStep LocalSgd::wait_for_step(const Batch& batch) {
  const double share = engine_.own_share(batch);
  LocalStep step{.own = engine_.wait_for_own_gradient(batch)};
  step.own.norm /= share;
  begin();
  update(step.own, share);
  ++steps_;
  ++since_exchange_;
  for (Fragment& fragment : fragments_) {
    ++fragment.steps;
    if (fragment.exchange && fragment.steps == config_.delay) finish_exchange(fragment, step);
  }
  step.since_exchange = since_exchange_;
  for (Fragment& fragment : fragments_) {
    if (fragment.steps == fragment.next) begin_exchange(fragment, false);
  }
  return step;
}

void LocalSgd::begin_exchange(Fragment& fragment, bool is_final) {
  const QuantizationErrors& errors = fragment.errors;
  const std::int64_t elements = fragment.elements.elements();
  fragment.sent = weights_.zeros(elements);
  weights_.read(fragment.sent, fragment.elements);
  const Tensor moved = weights_.zeros(errors ? errors.message_error.elements() : elements);
  const Tensor own = moved.rows(0, elements);
  kernels::axpy(own, part_of(anchor_, fragment.elements), -1, fragment.sent, stream_);
  if (errors) kernels::axpy(moved, moved, -1, errors.message_error, stream_);
  Communicator& ranks = sums_.ranks();
  const std::vector<double> scalars = take_scalars(is_final || &fragment == &fragments_.back());
  if (errors && !is_final) {
    fragment.exchange.emplace(moved, errors, scalars, ranks, stream_);
  } else {
    if (errors) {
      const Tensor shard = part_of(moved, shard_of(moved.elements(), ranks.rank(), ranks.size()));
      kernels::axpy(shard, shard, -1, errors.sum_error, stream_);
    }
    fragment.exchange.emplace(moved, scalars, ranks, stream_);
  }
  fragment.is_final = is_final;
  fragment.next = config_.steps;
  since_exchange_ = fragment.steps = 0;
}

void LocalSgd::finish_exchange(Fragment& fragment, LocalStep& step) {
  const Tensor mean = fragment.exchange->wait().rows(0, fragment.elements.elements());
  receive(*fragment.exchange, step);
  kernels::scale(mean, mean, 1 / static_cast<float>(sums_.ranks().size()), stream_);
  move_anchor(fragment, mean);
  const Tensor now = mean;  // reuses the memory of the mean
  weights_.read(now, fragment.elements);
  kernels::axpy(now, now, -1, fragment.sent, stream_);
  kernels::axpy(now, now, 1, part_of(anchor_, fragment.elements), stream_);
  weights_.write(now, fragment.elements);
  fragment.exchange.reset();
  fragment.sent = {};
}

void LocalSgd::move_anchor(const Fragment& fragment, const Tensor& mean) {
  const Tensor anchor = part_of(anchor_, fragment.elements);
  if (fragment.is_final) return kernels::axpy(anchor, anchor, -1, mean, stream_);
  const Tensor momentum = part_of(momentum_, fragment.elements);
  const auto outer = static_cast<float>(config_.outer_momentum);
  const auto rate = static_cast<float>(config_.outer_learning_rate);
  kernels::scale(momentum, momentum, outer, stream_);
  kernels::axpy(momentum, momentum, 1, mean, stream_);
  kernels::axpy(anchor, anchor, -rate, mean, stream_);
  kernels::axpy(anchor, anchor, -rate * outer, momentum, stream_);
}

void LocalSgd::average_state() {
  Communicator& ranks = sums_.ranks();
  const float share = 1 / static_cast<float>(ranks.size());
  engine_.optimizer().visit_state([&](const StateLabel&, Tensor& tensor) {
    if (!tensor) return;
    DelayedSum(tensor.view({tensor.elements()}), {}, ranks, stream_).wait();
    kernels::scale(tensor, tensor, share, stream_);
  });
  std::int64_t most = 0;
  for (const std::string& steps :
       ranks.host_gather(std::to_string(engine_.optimizer().steps_taken())))
    most = std::max(most, std::int64_t{std::stoll(steps)});
  engine_.optimizer().set_steps_taken(most);
}

LocalStep LocalSgd::wait_for_exact_weights() {
  LocalStep last;
  if (!has_begun()) return last;
  for (Fragment& fragment : fragments_) {
    if (fragment.exchange) finish_exchange(fragment, last);
  }
  for (Fragment& fragment : fragments_) {
    if (fragment.steps == 0 && !fragment.errors) continue;
    begin_exchange(fragment, true);
    finish_exchange(fragment, last);
  }
  weights_.write(anchor_, weights_.all());
  average_state();
  drop();
  return last;
}

void LocalSgd::drop() {
  for (Fragment& fragment : fragments_) {
    if (fragment.exchange) fragment.exchange->wait();
    fragment.exchange.reset();
    fragment.sent = {};
    fragment.errors = {};
  }
  anchor_ = {};
  steps_ = 0;
  skipped_ = 0;
  stop_requested_ = false;
  sums_.free();
  sums_.keep_local(false);
}

void LocalSgd::with_exact(const std::function<void()>& use) {
  if (!has_begun()) return use();
  const Tensor now = weights_.zeros(sums_.elements());
  weights_.read(now, weights_.all());
  weights_.write(anchor_, weights_.all());
  try {
    use();
  } catch (...) {
    weights_.write(now, weights_.all());
    throw;
  }
  weights_.write(now, weights_.all());
}

void LocalSgd::save(State& state) const {
  for (const Parameter* weight : engine_.parameters())
    state.tensors[kMomentum + weight->name()] = sums_.part_of(momentum_, *weight);
}

void LocalSgd::load(const State& state) {
  for (const Parameter* weight : engine_.parameters()) {
    const std::string name = kMomentum + weight->name();
    const Tensor own = sums_.part_of(momentum_, *weight);
    if (state.tensors.contains(name)) {
      wait_for_copy(own, state.tensor(name), stream_);
    } else {
      fill_zero(own, stream_);  // saved without local steps
    }
  }
}

/// Local SGD: ranks train independently in Predict; the divergence monitor ignores their losses.
class LocalSgdMethod final : public Method {
 public:
  using Method::Method;
  static const std::vector<Refusal>& refusals();
  static std::string text(const PhaseConfig& config) {
    const LocalSgdConfig& group = config.local_sgd;
    std::string sent;
    if (group.fragments > 1) sent += concat(" in ", group.fragments, " fragments");
    if (group.exchange_bits < 32) sent += concat(" with ", group.exchange_bits, " bits per weight");
    return concat(", each rank trains independently for ", group.steps,
                  " steps (local SGD), exchanges arrive ", group.delay,
                  group.delay == 1 ? " step" : " steps", " late",
                  sent.empty() ? "" : "; sent" + sent);
  }
  static std::unique_ptr<PendingWork> make_pending(const PendingSetup& setup) {
    return std::make_unique<LocalSgd>(setup);
  }
  static MethodTraits traits(const PhaseConfig& config) {
    const LocalSgdConfig& group = config.local_sgd;
    return {.runs_ahead_of_ranks = true,
            .delay = group.delay,
            .steps_to_fill_memory = group.delay + 2 + group.steps};
  }

  void predict(const Batch& batch, PhaseOutcome& outcome) override {
    const LocalStep step = local().wait_for_step(batch);
    outcome.cost += 1;
    outcome.loss = step.own.loss;
    outcome.gradient_norm = step.own.norm;
    outcome.lag = step.since_exchange;
    outcome.updates = step.own.finite() ? 1 : 0;
    report_skipped(step, outcome);
  }
  void drain(PhaseOutcome& outcome) override {
    report_skipped(local().wait_for_exact_weights(), outcome);
  }

 private:
  LocalTraining& local() const { return dynamic_cast<LocalTraining&>(parts_.model.pending()); }
  void report_skipped(const LocalStep& step, PhaseOutcome& outcome);
};

const std::vector<Refusal>& LocalSgdMethod::refusals() {
  static const std::vector<Refusal> rows = [] {
    std::vector<Refusal> all = refusals_ahead_of_ranks();
    const std::string steps = "phases.local_sgd.steps", longest = "phases.max_predict_steps";
    const std::vector<Refusal> own{
        {{"distributed.zero"}, {"0"}, "each rank needs the complete state"},
        {{steps},
         {"phases.local_sgd.delay"},
         "an exchange must arrive before the next one starts",
         Kind::kIsMoreThan},
        {.keys = {steps},
         .values = {longest},
         .why = "Predict would end before the first exchange",
         .kind = Kind::kIsLessThan,
         .when = {{longest, Kind::kIsMoreThan, {"0"}}}},
        {{"phases.local_sgd.fragments"},
         {steps},
         "each fragment is exchanged at a different step",
         Kind::kIsAtMost},
        {.keys = {"model.experts.bias_rate"},
         .values = {"0"},
         .why = "ranks exchange only weights, and the selection biases are not weights",
         .wanted = "0 and model.experts.balance_loss"},
        {{"phases.local_sgd.exchange_bits"},
         {"32", "8", "4"},
         "exchanges do not support this number of bits"},
    };
    all.insert(all.end(), own.begin(), own.end());
    return all;
  }();
  return rows;
}

/// Reports independent steps whose update was skipped. Throws Diverged if all updates were skipped.
void LocalSgdMethod::report_skipped(const LocalStep& step, PhaseOutcome& outcome) {
  if (step.skipped == 0) return;
  parts_.statistics.skipped_updates += step.skipped;
  outcome.warns = true;
  const std::string text =
      concat(step.skipped, " of ", step.steps,
             " independent steps of the ranks had a loss or gradient that was not finite");
  add_event(outcome, text + "; they were skipped");
  if (step.skipped < step.steps) return;
  outcome.recovery = Recovery::kAbort;
  throw Diverged(concat("training diverged: ", text,
                        "; the weights are from the last good update; lower "
                        "optimizer.learning_rate or check the data"));
}

}  // namespace

MethodRow local_sgd_row() { return row_of<LocalSgdMethod>("local_sgd"); }

}  // namespace hybrid_trainer
