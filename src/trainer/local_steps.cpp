#include "src/trainer/local_steps.h"

#include <utility>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/optim/gradient_norm.h"

namespace hybrid_trainer {
namespace {

constexpr const char* kMomentum = "outer_momentum.";

}  // namespace

LocalSteps::LocalSteps(const HybridTrainerConfig& config, const std::vector<Parameter*>& weights,
                       Optimizer& optimizer, OrderedGradients& leaves, const Stream& stream)
    : config_(config.phases),
      clip_norm_(config.optimizer.clip_norm),
      parameters_(weights),
      optimizer_(optimizer),
      leaves_(leaves),
      stream_(stream),
      momentum_(empty_like_all()) {}

Tensor LocalSteps::empty_like_all() const {
  return Tensor::zeros({leaves_.elements()}, DType::kF32, MemoryKind::kPredictor, stream_);
}

void LocalSteps::read_weights(const Tensor& all) const {
  for (const Parameter* weight : parameters_)
    copy(leaves_.part_of(all, *weight), weight->acquire_master(stream_), stream_);
}

void LocalSteps::write_weights(const Tensor& all) const {
  for (Parameter* weight : parameters_) {
    copy(weight->acquire_master(stream_, Use::kWrite), leaves_.part_of(all, *weight), stream_);
    weight->refresh_compute_copy(stream_);
  }
}

void LocalSteps::begin() {
  if (are_under_way()) return;
  const Tensor anchor = empty_like_all();
  read_weights(anchor);
  anchor_ = anchor;
  steps_ = 0;
}

LocalStep LocalSteps::step(const GradientMeasurement& own, double share, double learning_rate) {
  begin();
  LocalStep step;
  update(own, share, learning_rate);
  ++steps_;
  if (exchange_ && steps_ == config_.lag) finish_exchange(step);
  step.since_exchange = steps_;
  if (steps_ == config_.local_steps) begin_exchange();
  return step;
}

/// The gradient of the mean loss over its own micro-batches is 1/share of their part of the mean over
/// all.
void LocalSteps::update(const GradientMeasurement& own, double share, double learning_rate) {
  if (!own.finite()) {
    ++skipped_;
  } else {
    losses_ += own.loss;
    const auto clipped = static_cast<double>(clip_scale(own.norm, clip_norm_));
    optimizer_.step(static_cast<float>(learning_rate), static_cast<float>(clipped / share),
                    stream_);
  }
  leaves_.free();
}

void LocalSteps::begin_exchange() {
  sent_ = empty_like_all();
  read_weights(sent_);
  const Tensor moved = empty_like_all();
  kernels::axpy(moved, anchor_, -1, sent_, stream_);
  is_whole_ = steps_ == config_.local_steps;
  const std::vector<double> words{std::exchange(losses_, 0), std::exchange(skipped_, 0),
                                  static_cast<double>(std::exchange(steps_, 0)),
                                  asks_to_stop_ ? 1.0 : 0.0};
  exchange_.emplace(moved, words, leaves_.ranks(), stream_);
}

void LocalSteps::finish_exchange(LocalStep& step) {
  const Tensor mean = exchange_->wait();  // the sum, at first
  const auto steps = static_cast<std::int64_t>(exchange_->sum_of(kSteps));
  const auto skipped = static_cast<std::int64_t>(exchange_->sum_of(kSkipped));
  step.steps += steps;
  step.skipped += skipped;
  if (steps > skipped)
    step.mean_loss = exchange_->sum_of(kLosses) / static_cast<double>(steps - skipped);
  was_asked_to_stop_ |= exchange_->sum_of(kStops) > 0;
  kernels::scale(mean, mean, 1 / static_cast<float>(leaves_.ranks().size()), stream_);
  move_anchor(mean);
  const Tensor now = mean;  // what it held is used up
  read_weights(now);
  kernels::axpy(now, now, -1, sent_, stream_);
  kernels::axpy(now, now, 1, anchor_, stream_);
  write_weights(now);
  exchange_.reset();
  sent_ = {};
}

void LocalSteps::move_anchor(const Tensor& mean) {
  if (!is_whole_) return kernels::axpy(anchor_, anchor_, -1, mean, stream_);
  const auto outer = static_cast<float>(config_.outer_momentum);
  const auto rate = static_cast<float>(config_.outer_learning_rate);
  kernels::scale(momentum_, momentum_, outer, stream_);
  kernels::axpy(momentum_, momentum_, 1, mean, stream_);
  kernels::axpy(anchor_, anchor_, -rate, mean, stream_);
  kernels::axpy(anchor_, anchor_, -rate * outer, momentum_, stream_);
}

void LocalSteps::average_state() {
  Communicator& ranks = leaves_.ranks();
  const float share = 1 / static_cast<float>(ranks.size());
  optimizer_.visit_state([&](const std::string&, Tensor& tensor) {
    if (!tensor) return;
    ranks.all_reduce(tensor, Reduction::kSum, stream_);
    kernels::scale(tensor, tensor, share, stream_);
  });
  const Tensor steps = Tensor::zeros({1}, DType::kF64, MemoryKind::kWorkspace, stream_);
  if (stream_.device().simulated) return;
  *steps.data<double>() = static_cast<double>(optimizer_.steps_taken());
  ranks.all_reduce(steps, Reduction::kMax, stream_);
  optimizer_.set_steps_taken(static_cast<std::int64_t>(*steps.data<double>()));
}

LocalStep LocalSteps::end() {
  LocalStep last;
  if (!are_under_way()) return last;
  if (exchange_) finish_exchange(last);
  if (steps_ > 0) {
    begin_exchange();
    finish_exchange(last);
  }
  write_weights(anchor_);
  average_state();
  drop();
  return last;
}

void LocalSteps::drop() {
  if (exchange_) exchange_->wait();
  exchange_.reset();
  sent_ = anchor_ = {};
  steps_ = 0;
  losses_ = skipped_ = 0;
  was_asked_to_stop_ = false;
  leaves_.free();
  leaves_.keep_own(false);
}

void LocalSteps::with_exact(const std::function<void()>& use) {
  if (!are_under_way()) return use();
  const Tensor now = empty_like_all();
  read_weights(now);
  write_weights(anchor_);
  struct Back {
    ~Back() { steps.write_weights(now); }
    const LocalSteps& steps;
    const Tensor& now;
  } const back{*this, now};
  use();
}

void LocalSteps::save(State& state) const {
  for (const Parameter* weight : parameters_)
    state.tensors[kMomentum + weight->name()] = leaves_.part_of(momentum_, *weight);
}

void LocalSteps::load(const State& state) {
  for (const Parameter* weight : parameters_) {
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
