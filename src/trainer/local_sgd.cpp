#include <algorithm>
#include <string>
#include <utility>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "src/trainer/pending_work.h"

namespace hybrid_trainer {

Tensor part_of(const Tensor& tensor, const Shard& elements) {
  return tensor.view({tensor.elements()}).rows(elements.first, elements.last);
}

Tensor FlatWeights::zeros(std::int64_t elements) const {
  return Tensor::zeros({elements}, DType::kF32, MemoryKind::kPredictor, stream_);
}

/// call(weight, elements of it, the same among `elements`) for each weight that has some of them.
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

namespace {

constexpr const char* kMomentum = "outer_momentum.";

}  // namespace

LocalSgd::LocalSgd(const HybridTrainerConfig& config, TrainingStep& step)
    : config_(config.phases.local_sgd),
      clip_norm_(config.optimizer.clip_norm),
      step_(step),
      leaves_(step.ordered_gradients()),
      stream_(step.stream()),
      weights_(step.weights(), leaves_, stream_),
      momentum_(weights_.zeros(leaves_.elements())),
      fragments_(make_fragments()) {}

/// Weights are cut where parts of one size end: a table of tokens may be most of all.
std::vector<LocalSgd::Fragment> LocalSgd::make_fragments() const {
  const std::int64_t steps = config_.steps, elements = leaves_.elements();
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
  if (are_under_way()) return;
  const Tensor anchor = weights_.zeros(leaves_.elements());
  weights_.read(anchor, weights_.all());
  for (Fragment& fragment : fragments_) {
    fragment.steps = 0;
    fragment.next = fragment.offset;
    if (config_.exchange_bits == 32) continue;
    fragment.errors =
        LowBitErrors(fragment.elements.elements(), config_.exchange_bits, leaves_.ranks(), stream_);
  }
  anchor_ = anchor;
  since_exchange_ = steps_ = 0;
}

LocalStep LocalSgd::wait_for_step(const Batch& batch) {
  const double share = step_.own_share(batch);
  LocalStep step{.own = step_.wait_for_own_gradient(batch)};
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

/// The gradient of the mean loss over its own micro-batches is 1/share of their part of the mean over
/// all.
void LocalSgd::update(const GradientMeasurement& own, double share) {
  if (!own.finite()) {
    ++skipped_;
  } else {
    const auto clipped = static_cast<double>(clip_scale(own.norm, clip_norm_));
    step_.optimizer().step(static_cast<float>(step_.rates().rate()),
                           static_cast<float>(clipped / share), stream_);
  }
  leaves_.free();
}

/// What a rank did is told once, after as many steps as the ranks make between two exchanges of a
/// fragment, however many there are.
std::vector<double> LocalSgd::take_words(bool of_steps) {
  std::vector<double> words{0, 0, asks_to_stop_ ? 1.0 : 0.0};
  if (!of_steps) return words;
  words[kSkipped] = std::exchange(skipped_, 0);
  words[kSteps] = static_cast<double>(std::exchange(steps_, 0));
  return words;
}

void LocalSgd::begin_exchange(Fragment& fragment, bool is_rest) {
  const LowBitErrors& errors = fragment.errors;
  const std::int64_t elements = fragment.elements.elements();
  fragment.sent = weights_.zeros(elements);
  weights_.read(fragment.sent, fragment.elements);
  const Tensor moved = weights_.zeros(errors ? errors.of_message.elements() : elements);
  const Tensor own = moved.rows(0, elements);
  kernels::axpy(own, part_of(anchor_, fragment.elements), -1, fragment.sent, stream_);
  if (errors) kernels::axpy(moved, moved, -1, errors.of_message, stream_);
  Communicator& ranks = leaves_.ranks();
  const std::vector<double> words = take_words(is_rest || &fragment == &fragments_.back());
  if (errors && !is_rest) {
    fragment.exchange.emplace(moved, errors, words, ranks, stream_);
  } else {
    if (errors) {
      const Tensor shard = part_of(moved, shard_of(moved.elements(), ranks.rank(), ranks.size()));
      kernels::axpy(shard, shard, -1, errors.of_sum, stream_);
    }
    fragment.exchange.emplace(moved, words, ranks, stream_);
  }
  fragment.is_rest = is_rest;
  fragment.next = config_.steps;
  since_exchange_ = fragment.steps = 0;
}

void LocalSgd::hear(const LateSum& exchange, LocalStep& step) {
  was_asked_to_stop_ |= exchange.sum_of(kStops) > 0;
  step.steps += static_cast<std::int64_t>(exchange.sum_of(kSteps));
  step.skipped += static_cast<std::int64_t>(exchange.sum_of(kSkipped));
}

void LocalSgd::finish_exchange(Fragment& fragment, LocalStep& step) {
  const Tensor mean = fragment.exchange->wait().rows(0, fragment.elements.elements());
  hear(*fragment.exchange, step);
  kernels::scale(mean, mean, 1 / static_cast<float>(leaves_.ranks().size()), stream_);
  move_anchor(fragment, mean);
  const Tensor now = mean;  // what it held is used up
  weights_.read(now, fragment.elements);
  kernels::axpy(now, now, -1, fragment.sent, stream_);
  kernels::axpy(now, now, 1, part_of(anchor_, fragment.elements), stream_);
  weights_.write(now, fragment.elements);
  fragment.exchange.reset();
  fragment.sent = {};
}

void LocalSgd::move_anchor(const Fragment& fragment, const Tensor& mean) {
  const Tensor anchor = part_of(anchor_, fragment.elements);
  if (fragment.is_rest) return kernels::axpy(anchor, anchor, -1, mean, stream_);
  const Tensor momentum = part_of(momentum_, fragment.elements);
  const auto outer = static_cast<float>(config_.outer_momentum);
  const auto rate = static_cast<float>(config_.outer_learning_rate);
  kernels::scale(momentum, momentum, outer, stream_);
  kernels::axpy(momentum, momentum, 1, mean, stream_);
  kernels::axpy(anchor, anchor, -rate, mean, stream_);
  kernels::axpy(anchor, anchor, -rate * outer, momentum, stream_);
}

void LocalSgd::average_state() {
  Communicator& ranks = leaves_.ranks();
  const float share = 1 / static_cast<float>(ranks.size());
  step_.optimizer().visit_state([&](const StateLabel&, Tensor& tensor) {
    if (!tensor) return;
    LateSum(tensor.view({tensor.elements()}), {}, ranks, stream_).wait();
    kernels::scale(tensor, tensor, share, stream_);
  });
  std::int64_t most = 0;
  for (const std::string& steps :
       ranks.host_gather(std::to_string(step_.optimizer().steps_taken())))
    most = std::max(most, std::int64_t{std::stoll(steps)});
  step_.optimizer().set_steps_taken(most);
}

LocalStep LocalSgd::wait_for_exact_weights() {
  LocalStep last;
  if (!are_under_way()) return last;
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
  was_asked_to_stop_ = false;
  leaves_.free();
  leaves_.keep_own(false);
}

void LocalSgd::with_exact(const std::function<void()>& use) {
  if (!are_under_way()) return use();
  const Tensor now = weights_.zeros(leaves_.elements());
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

std::optional<bool> LocalSgd::vote_to_stop(bool asks) {
  if (!are_under_way()) return {};
  asks_to_stop_ = asks;
  return was_asked_to_stop_;
}

void LocalSgd::save(State& state) const {
  for (const Parameter* weight : step_.weights())
    state.tensors[kMomentum + weight->name()] = leaves_.part_of(momentum_, *weight);
}

void LocalSgd::load(const State& state, const Precision&) {
  for (const Parameter* weight : step_.weights()) {
    const std::string name = kMomentum + weight->name();
    const Tensor own = leaves_.part_of(momentum_, *weight);
    if (state.tensors.contains(name)) {
      wait_for_copy(own, state.tensor(name), stream_);
    } else {
      fill_zero(own, stream_);  // of a run without local steps
    }
  }
}

}  // namespace hybrid_trainer
