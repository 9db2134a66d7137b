#include "src/trainer/model_trainable.h"

#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/text_head.h"
#include "memory/offloaded_weights.h"
#include "src/config/config_checks.h"
#include "src/core/profile.h"
#include "src/optim/make_optimizer.h"

namespace hybrid_trainer {

namespace {

/// Returns the precision. "auto" for Predict means Full's, unless the method skips backward.
MixedPrecisionConfig precision_of(const HybridTrainerConfig& config) {
  MixedPrecisionConfig precision = config.mixed_precision;
  if (!config.phases.traits().skips_backward && precision.predict == "auto")
    precision.predict = precision.full;
  return precision;
}

/// Returns the number of inputs of the largest matrix, the typical width of the products.
std::int64_t typical_width(LossModel& model) {
  std::int64_t width = 64, most = 0;
  model.visit_parameters([&](const Parameter& parameter) {
    if (!is_matrix(parameter.role()) || parameter.elements() <= most) return;
    most = parameter.elements();
    width = parameter.shape()[1];
  });
  return width;
}

WeightSharing sharing_of(const HybridTrainerConfig& config, std::int64_t bucket_bytes) {
  const DistributedConfig& given = config.distributed;
  return {.shards = given.zero == 3,
          .background = given.overlap && DeviceMap(config.memory).farthest() == "device",
          .bucket_bytes = bucket_bytes,
          .bytes_ahead = static_cast<std::size_t>(given.overlap ? bucket_bytes : 0)};
}

/// Returns null if weights are replicated. Collective. Throws ConfigError: see check_ranks.
std::unique_ptr<WeightParts> make_weight_parts(const HybridTrainerConfig& config,
                                               const std::vector<Parameter*>& weights,
                                               Communicator* ranks, const Stream& stream) {
  // Some simulations have no `ranks` although the run has several ranks.
  const bool is_real_single = ranks == nullptr && !stream.device().simulated;
  if (ranks != nullptr || (is_real_single && config.phases.traits().runs_ahead_of_ranks))
    check_ranks(config, ranks == nullptr ? 1 : ranks->size());
  if (ranks == nullptr || config.distributed.zero == 0) return {};
  return std::make_unique<WeightParts>(
      weights, config.optimizer, *ranks,
      sharing_of(config, bucket_bytes_for(weights, config.distributed)), stream);
}

/// Makes the optimizer of the method, by default the configured one. Throws OutOfMemory.
std::unique_ptr<Optimizer> make_step_optimizer(const HybridTrainerConfig& config,
                                               const std::vector<Parameter*>& parameters,
                                               const Stream& stream, MemoryPlaces& places) {
  const Stream& home = places.at(config.optimizer_state_home());
  auto own = make_own_optimizer({config.phases, config.optimizer, config.memory.gradient_bits,
                                 parameters, stream, places.host(), home});
  if (own != nullptr) return own;
  return make_optimizer(
      config.optimizer, parameters, stream, home, config.device_budget(),
      config.optimizer_state_home() == "file" ? Copies::kInBackground : Copies::kInStream);
}

}  // namespace

ModelTrainable::ModelTrainable(LossModel& model, const HybridTrainerConfig& config,
                               const Stream& stream, std::shared_ptr<MemoryPlaces> places,
                               MessageCallback report, Communicator* ranks)
    : model_(model),
      stream_(stream),
      ranks_(ranks),
      config_(config),
      places_(std::move(places)),
      report_(std::move(report)),
      stages_(config),
      rates_(config, stages_),
      micro_batches_(config, stages_),
      trained_weights_(trainable_parameters(model)),
      scales_(model, config, ranks, stream, places_->host()),
      pass_(model, config, rates_, scales_, *places_, stream),
      parts_(make_weight_parts(config_, trained_weights_, ranks, stream)),
      retry_(config, micro_batches_, ranks, parts_.get(), stream),
      optimizer_(make_step_optimizer(config_, parameters(), stream, *places_)),
      path_(
          make_gradient_path(config_, {trained_weights_, micro_batches_, pass_, rates_, *optimizer_,
                                       ranks, parts_.get(), retry_, *places_, stream})),
      precision_(precision_of(config), typical_width(model), stream.device()),
      offload_(config, *places_, *this, report_),
      rollback_(*this, *places_),
      average_(config.training.average_weights, places_->overflow()),
      routers_(model, stream),
      weights_(*this, offload_, average_, *places_) {
  go_to_step();
  pending_ = make_pending_work({config_.phases, config_.optimizer, *this, report_});
  const DeviceMap map(config.memory);
  if (map.farthest() != "device") move_weights(model, map, *places_);
}

/// Enables recordings, except in a forward-only Predict. A recording keeps the memory of a backward
/// pass, but such a Predict computes only the few gradients of micro-corrections.
void ModelTrainable::enter_phase(Phase phase) {
  micro_batches_.enter(phase);
  optimizer_->leave_device(stream_);
  phase_ = phase;
  const bool predicts = phase == Phase::kPredict && config_.phases.traits().skips_backward;
  if (predicts) {
    free_gradients();
    offload_.move_state_out();
  } else {
    offload_.end_predict();
  }
  compute(!predicts);
  if (predicts) {
    routers_.take();
    offload_.move_masters_out();
  } else {
    routers_.drop();
  }
  if (phase == Phase::kPredict) pending_->enter_predict();
  if (phase_entry_use_) return;  // Full's precision in a step of Correct
  phase_entry_use_ = stream_.pool()->use();
  stream_.pool()->reset_peaks();
}

void ModelTrainable::set_steps_done(std::int64_t steps) {
  steps_done_ = steps;
  go_to_step();
}

void ModelTrainable::rewind(std::int64_t steps) {
  rewound_ = steps;
  go_to_step();
}

void ModelTrainable::go_to_step() {
  const std::int64_t steps = steps_done_ - rewound_;
  rates_.set_steps_done(steps);
  optimizer_->set_orthogonalization_period(stages_.at(steps).orthogonalization_period.value_or(
      config_.optimizer.orthogonalization_period));
  optimizer_->set_progress(rates_.progress());
  if (chosen_ && wanted_precision() != *chosen_) compute(true);
}

/// Returns the precision of the current step. In Warmup and Full, a stage may have its own
/// precision.
Precision ModelTrainable::wanted_precision() const {
  const bool is_staged = phase_ == Phase::kWarmup || phase_ == Phase::kFull;
  const std::optional<std::string>& own = stages_.at(steps_done_ - rewound_).precision;
  return is_staged && own ? precision_named(*own, stream_.device()) : precision_.of(phase_);
}

void ModelTrainable::compute_in(const Precision& precision, bool records) {
  recording_.drop();
  scales_.set_form(precision.products);
  pass_.compute_in(precision.dtype, records);
}

GradientSums& ModelTrainable::sums() { return dynamic_cast<GradientSums&>(*path_->leaves()); }

void ModelTrainable::publish_weights() {
  if (parts_) return parts_->masters_changed(stream_);
  for (Parameter* parameter : trained_weights_) parameter->refresh_compute_copy(stream_);
}

void ModelTrainable::free_gradients() {
  recording_.drop();
  path_->free();
}

void ModelTrainable::report_if_halved(const Batch& batch, std::int64_t before) const {
  const std::int64_t now = micro_batches_.of(batch);
  if (now == before) return;
  report_(concat("memory is too small for micro-batches of ", batch.size() / before,
                 " examples in ", name_of(phase_), "; reduced to ", batch.size() / now,
                 " in this phase from now on"));
}

GradientMeasurement ModelTrainable::wait_for_gradient(const Batch& batch) {
  offload_.begin_return(phase_);
  micro_batches_.require_whole(batch);
  const std::int64_t before = micro_batches_.of(batch);
  path_->prepare(batch);
  PendingGradient pending;
  double loss = 0;
  for (bool is_done = false; !is_done;) {
    pass_.begin_gradient();
    StepRetry retry = StepRetry::kNone;
    try {
      const Batch compared = path_->with_output_gradients(batch, retry);
      if (retry == StepRetry::kNone)
        pending = pass_.records() ? replay(batch) : path_->enqueue(compared, stream_);
    } catch (const OutOfMemory& error) {
      retry_locally(batch, error);
      continue;
    }
    if (retry == StepRetry::kNone) retry = wait_for_ranks(batch, pending, loss);
    is_done = retry == StepRetry::kNone;
    retry_.repeat_step(batch, retry, path_->involves_peers());
  }
  for (Parameter* parameter : pending.written)
    if (!parameter->gradient()) parameter->mark_gradient_replayed();
  const GradientMeasurement measured = scales_.measure(loss, path_->wait_for_norm(pending));
  if (measured.lowered_loss_scale) {
    recording_.drop();
    pass_.commit_states();  // the states of forward are valid
  }
  report_if_halved(batch, before);
  return measured;
}

/// Sets `loss` to the mean over all ranks. Returns the strongest request of any rank.
StepRetry ModelTrainable::wait_for_ranks(const Batch& batch, const PendingGradient& pending,
                                         double& loss) const {
  StepRetry retry = pending.retry;
  loss = ranks_ == nullptr ? pass_.wait_for_mean_of(pending.losses)
                           : path_->leaves()->wait_for_mean_of(
                                 pending.losses, micro_batches_.of(batch), retry, stream_);
  return retry;
}

GradientMeasurement ModelTrainable::wait_for_own_gradient(const Batch& batch) {
  const std::int64_t before = micro_batches_.of(batch);
  sums().keep_local(true);
  PendingGradient pending;
  for (bool is_done = false; !is_done;) {
    pass_.begin_gradient();
    try {
      StepRetry none = StepRetry::kNone;
      pending = path_->enqueue(path_->with_output_gradients(batch, none), stream_);
      is_done = true;
    } catch (const OutOfMemory& error) {
      retry_locally(batch, error);
    }
  }
  path_->measure_own(pending);
  const GradientMeasurement own{.loss = pass_.wait_for_mean_of(pending.losses),
                                .norm = wait_for_norm(pending.squares, stream_)};
  report_if_halved(batch, before);
  return own;
}

PendingGradient ModelTrainable::replay(const Batch& batch) {
  pass_.upload_step_number();
  const auto enqueue = [this](const Batch& given, const Stream& stream) {
    return path_->enqueue(given, stream);
  };
  return recording_.run(batch, enqueue, stream_);
}

/// Prepares to repeat the step on this rank only, or rethrows `error`, the current exception.
void ModelTrainable::retry_locally(const Batch& batch, const OutOfMemory& error) {
  const bool involves_peers = path_->involves_peers();
  if (pass_.records() || !retry_.may_repeat_step(involves_peers)) throw;
  if (path_->immediate() != nullptr && path_->immediate()->is_updating()) throw;
  retry_.repeat_step(batch, retry_.wait_for_retry(batch, error, *optimizer_), involves_peers);
}

double ModelTrainable::wait_for_loss(const Batch& batch, std::int64_t examples) {
  offload_.begin_return(phase_);
  if (phase_ == Phase::kPredict) free_gradients();
  const std::int64_t before = micro_batches_.of(batch);
  for (;;) {
    StepRetry retry = StepRetry::kNone;
    double loss = 0;
    try {
      loss = try_loss(batch, examples, retry);
    } catch (const OutOfMemory& error) {
      retry_locally(batch, error);
      continue;
    }
    if (is_distributed()) retry = retry_.wait_for_common_retry(retry);
    if (retry == StepRetry::kNone) return report_if_halved(batch, before), loss;
    retry_.repeat_step(batch, retry, path_->involves_peers());
  }
}

double ModelTrainable::try_loss(const Batch& batch, std::int64_t examples, StepRetry& retry) {
  const std::int64_t size = std::max<std::int64_t>(1, batch.size() / micro_batches_.of(batch));
  const TextHead* const compares = pass_.comparing_head();
  std::vector<Tensor> results;  // losses, or outputs to compare
  std::int64_t last = 0;
  for (std::int64_t first = 0; first < examples; first += size) {
    last = std::min(size, examples - first);
    if (parts_) parts_->begin_forward(stream_);
    const Batch part = batch.examples(first, first + last);
    for (bool is_done = false; !is_done;) {
      try {
        const Batch computed = MemoryRetry::computed_part(part, retry);
        results.push_back(compares ? pass_.enqueue_outputs(computed)
                                   : pass_.enqueue_forward(computed));
        is_done = true;
      } catch (const OutOfMemory& error) {
        retry_.reduce_memory(batch, error, retry, *optimizer_);
      }
    }
  }
  if (retry != StepRetry::kNone) return 0;
  if (compares) return wait_for_comparison(*compares, results, batch.examples(0, examples));
  return pass_.wait_for_mean_of(results, static_cast<double>(last) / static_cast<double>(size));
}

/// Returns the loss of the texts of several micro-batches, given their outputs.
double ModelTrainable::wait_for_comparison(const TextHead& head, const std::vector<Tensor>& parts,
                                           const Batch& batch) const {
  const Tensor outputs = Tensor::empty({batch.at("ends").elements(), head.outputs()}, DType::kF32,
                                       MemoryKind::kWorkspace, stream_);
  std::int64_t row = 0;
  for (const Tensor& part : parts) {
    copy(outputs.rows(row, row + part.size(0)), part, stream_);
    row += part.size(0);
  }
  return kernels::wait_for_value(head.text_loss().compute(outputs, batch, 0, stream_), stream_);
}

void ModelTrainable::finish_batch() {
  pass_.commit_states();
  if (scales_.wait_for_update()) recording_.drop();
}

void ModelTrainable::apply_gradient() {
  offload_.wait_until_restored();
  finish_batch();
  if (path_->immediate() == nullptr) {
    const StepPartTimer timer(stream_, StepPart::kUpdate);
    optimizer_->step(static_cast<float>(rates_.rate()), scales_.update_scale(), stream_);
  }
  pending_->observe_update(scales_.clip_scale());
  if (parts_) publish_weights();
  average_.add(parameters(), stream_);
}

void ModelTrainable::exchange_average() {
  average_.exchange(parameters(), stream_);
  if (!parts_) return;
  publish_weights();
  send_weights();
}

void ModelTrainable::with_average(const std::function<void()>& callback) {
  if (!average_.exists()) return;
  exchange_average();
  try {
    callback();
  } catch (const Diverged&) {
    exchange_average();
    throw;
  } catch (...) {  // may be an error of one rank only
    if (!is_distributed()) exchange_average();
    throw;
  }
  exchange_average();
}

void ModelTrainable::save(State& state) {
  if (path_->immediate() != nullptr) path_->immediate()->require_whole();
  stream_.synchronize();
  offload_.prepare_save(state, phase_);
  weights_.save(state);
  micro_batches_.save(state);
  rollback_.save(state);
  average_.save(state, parameters());
  routers_.save(state);
  save_selection_biases(model_, state);
  if (pass_.states() != nullptr) pass_.states()->save(state);
  precision_.save(state);
  scales_.save(state);
  pending_->save(state);
}

void ModelTrainable::load(const State& state) {
  pending_->drop();
  offload_.prepare_load(state);
  rollback_.drop_snapshot();
  weights_.load(state);
  average_.load(state, parameters(), stream_);
  routers_.load(state);
  load_selection_biases(model_, state, stream_);
  if (pass_.states() != nullptr) pass_.states()->load(state, stream_);
  precision_.load(state);
  scales_.load(state);
  micro_batches_.load(state, report_);
  publish_weights();
  send_weights();
  if (config_.phases.traits().delays_updates) compute_in(precision_.of(Phase::kPredict), true);
  pending_->load(state);
  rollback_.load(state);
}

}  // namespace hybrid_trainer
