#include "hybrid_trainer/trainer/memory_simulation.h"

#include "hybrid_trainer/phases/phase_machine.h"
#include "src/distributed/single_communicator.h"
#include "src/trainer/planning/simulated_trainable.h"
#include "src/trainer/run_model.h"

namespace hybrid_trainer {

namespace {

/// Slab size of simulated pools, above any device's, so that a pool's extent is the run's need.
constexpr std::size_t kEndless = std::size_t{1} << 46;

std::int64_t longest_prediction(const HybridTrainerConfig& config) {
  const std::int64_t before =
      config.phases.warmup_steps + std::max<std::int64_t>(4, config.phases.full_steps);
  return std::min(config.phases.max_predict_steps, config.training.steps - before - 1);
}

/// Reduces phases to the fewest steps with the same peaks, except for the batches of predictions.
PhaseMachine::Setup shortened(const HybridTrainerConfig& config, SimulatedPhases phases) {
  PhaseConfig short_phases = config.phases;
  short_phases.warmup_steps = std::min<std::int64_t>(2, config.phases.warmup_steps);
  short_phases.full_steps = std::min<std::int64_t>(4, config.phases.full_steps);
  const std::int64_t longest =
      std::min(longest_prediction(config), config.phases.traits().steps_to_fill_memory);
  const bool predicts = phases == SimulatedPhases::kAll && longest > 0;
  short_phases.max_predict_steps = predicts ? longest : 0;
  SkipBackwardConfig& predictions = short_phases.skip_backward;
  predictions.trial_steps = std::max<std::int64_t>(1, short_phases.max_predict_steps);
  predictions.horizon = "measured";  // a model-based horizon may be shorter
  predictions.slow_steps = std::min(predictions.slow_steps, predictions.history_interval);
  LearningRateFinderConfig finder = config.learning_rate_finder;
  finder.interval = 1;  // probes in the second step
  for (PredictionVariant& arm : predictions.variants) arm.steps = predictions.trial_steps;
  std::stable_partition(predictions.variants.begin(), predictions.variants.end(),
                        [](const PredictionVariant& arm) { return arm.predictor != "zero"; });
  const PredictAwareMemoryConfig& memory = config.predict_aware_memory;
  return {.phases = short_phases,
          .divergence = config.divergence,
          .restore_lookahead = memory.async_restore ? memory.async_restore_lookahead : 0,
          .learning_rate_finder = finder};
}

/// Returns the config with fewer repetitions and the same memory. Removes the schedule's stages and
/// all but the first few micro-batches, since the later ones need no more memory; batches of the
/// loader and sums of micro-batches are added separately. Keeps the local steps that pending
/// exchanges need.
HybridTrainerConfig with_fewer_repeats(HybridTrainerConfig config, const SimulatedRank& rank) {
  constexpr std::int64_t kMax = 3;
  config.stages.clear();
  LocalSgdConfig& local = config.phases.local_sgd;
  local.steps = std::min(local.steps, (local.delay + 1) * local.fragments);
  // Each of several ranks has few micro-batches anyway. Losses that compare texts need the outputs
  // of all micro-batches.
  if (rank.ranks > 1 || config.compares_examples()) return config;
  config.gradient_accumulation.micro_batches =
      std::min(config.gradient_accumulation.micro_batches, kMax);
  return config;
}

using BytesByKind = std::array<std::size_t, kMemoryKinds>;

void include_larger(BytesByKind& most, const BytesByKind& other) {
  std::ranges::transform(most, other, most.begin(), std::ranges::max);
}

/// Returns the live bytes of each kind, or the bytes in `most` for kinds that are not live.
BytesByKind live_or_peak_bytes(const MemoryUse& use, const BytesByKind& most) {
  BytesByKind bytes = use.live;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
    if (bytes[kind] == 0) bytes[kind] = most[kind];
  return bytes;
}

void include_larger(PhaseMemory& taken, const PhaseMemory& other) {
  taken.peak_bytes = std::max(taken.peak_bytes, other.peak_bytes);
  include_larger(taken.by_kind, other.by_kind);
}

void include_larger(MemoryNeed& need, const MemoryNeed& other) {
  need.device_bytes = std::max(need.device_bytes, other.device_bytes);
  need.host_bytes = std::max(need.host_bytes, other.host_bytes);
  need.disk_bytes = std::max(need.disk_bytes, other.disk_bytes);
  include_larger(need.reference, other.reference);
  need.transfer.bytes_sent = std::max(need.transfer.bytes_sent, other.transfer.bytes_sent);
  need.transfer.link_bytes = std::max(need.transfer.link_bytes, other.transfer.link_bytes);
  for (std::size_t i = 0; i < kPhases; ++i) include_larger(need.phases[i], other.phases[i]);
  include_larger(need.device_by_kind, other.device_by_kind);
  include_larger(need.host_by_kind, other.host_by_kind);
  include_larger(need.disk_by_kind, other.disk_by_kind);
}

/// Simulates a run without its data and files.
class SimulatedRun {
 public:
  SimulatedRun(const HybridTrainerConfig& config, Device device, const ModelRegistry& registry,
               const SimulatedRank& rank, MemoryListener* listener)
      : config_(with_fewer_repeats(config.with_parts(), rank)),
        others_(rank.rank, rank.ranks),
        stream_(endless(make_device_pool({device.type, device.index, true}))),
        host_(make_host_pool(stream_.device(), config.memory.host_budget.limit())),
        places_(std::make_shared<MemoryPlaces>(config_.memory, stream_, host_.pool())),
        model_(make_run_model(config_, {}, *places_, registry)),
        reference_(reference_phase()),
        trainable_(
            *model_, config_, stream_, places_, [](const std::string&) {},
            rank.ranks > 1 ? &others_ : nullptr),
        scripted_(trainable_) {
    if (listener != nullptr) stream_.pool()->set_listener(listener);
    allocate_data(config.gradient_accumulation.micro_batches);
    set_partial_sums(config.gradient_accumulation.micro_batches);
  }

  MemoryNeed run(SimulatedPhases phases) {
    const PhaseMachine::Setup setup = shortened(config_, phases);
    if (phases == SimulatedPhases::kFirstUpdate) {
      trainable_.enter_phase(Phase::kWarmup);
      update(Phase::kWarmup);
    } else if (setup.phases.max_predict_steps > 0) {
      predict(setup, true);
      if (config_.phases.traits().skips_backward) predict(setup, false);
    } else {
      if (setup.learning_rate_finder.is_on()) find_learning_rate(setup);
      for (const Phase phase : {Phase::kWarmup, Phase::kFull, Phase::kCorrect}) {
        if (phase == Phase::kCorrect && config_.phases.max_predict_steps == 0) continue;
        trainable_.enter_phase(phase);
        // A second update prefetches in the order of the first, including rounded weights.
        const bool twice = phase == Phase::kWarmup || DeviceMap(config_.memory).uses("file") ||
                           config_.distributed.zero == 3;
        const int updates = twice ? 2 : 1;
        for (int i = 0; i < updates; ++i) update(phase);
      }
    }
    need_.reference = reference_;
    if (phases != SimulatedPhases::kFirstUpdate) evaluate();
    const MemoryUse use = stream_.pool()->use();
    need_.device_bytes =
        use.extent > 0 ? use.extent
                       : std::max({need_.device_bytes, use.peak_total, reference_.peak_bytes});
    BytesByKind most{};
    for (const PhaseMemory& phase : need_.phases) include_larger(most, phase.by_kind);
    const MemoryUse in_files = places_->file_use(), on_host = host_.pool()->use();
    need_.disk_bytes = in_files.max_taken;
    need_.host_bytes = on_host.max_taken;
    need_.device_by_kind = live_or_peak_bytes(use, most);
    need_.host_by_kind = live_or_peak_bytes(on_host, on_host.peak);
    need_.disk_by_kind = live_or_peak_bytes(in_files, in_files.peak);
    return need_;
  }

 private:
  static std::shared_ptr<MemoryPool> endless(std::shared_ptr<MemoryPool> pool) {
    pool->reserve(kEndless, "simulation");
    return pool;
  }

  /// Allocates the batches of loader and evaluation; on CUDA, one uploaded batch of each.
  void allocate_data(std::int64_t micro_batches) {
    const bool on_host = stream_.device().type == DeviceType::kCuda;
    const std::int64_t loaded = config_.data.batch_size * micro_batches;
    const auto add = [&](std::int64_t size, const Stream& stream) {
      data_.push_back(model_->empty_batch(batch_form(config_, size), stream));
      return data_.back();
    };
    Batch batch;
    for (std::int64_t i = 0; i <= config_.data.prefetch_depth; ++i)
      batch = add(loaded, on_host ? host_ : stream_);
    windows_ = add(config_.evaluation_batch(), on_host ? host_ : stream_);
    if (on_host) {
      batch = add(loaded, stream_);
      windows_ = add(config_.evaluation_batch(), stream_);
    }
    whole_ = batch;
    whole_.set_continues(config_.data.carry_state);
    scripted_.compute_with(config_.gradient_accumulation.micro_batches, config_.data.batch_size);
  }

  /// Allocates the partial sums that are missing because fewer micro-batches are simulated.
  void set_partial_sums(std::int64_t micro_batches) {
    if (stream_.device().type != DeviceType::kCpu || config_.memory.gradient_bits != 32) return;
    std::int64_t elements = 0;
    model_->visit_parameters([&](const Parameter& parameter) {
      if (parameter.trainable()) elements += parameter.elements();
    });
    const int simulated = max_partial_sums(config_.gradient_accumulation.micro_batches);
    const bool away = config_.memory.gradients == "consume";
    scripted_.set_partial_sums(max_partial_sums(micro_batches) - simulated, elements,
                               away ? places_->overflow() : stream_);
  }

  void update(Phase phase) {
    trainable_.send_weights();
    scripted_.wait_for_gradient(whole_);
    trainable_.apply_gradient();
    account(phase);
  }

  /// Counts a step's memory for its phase, and a transition's for the previous phase.
  void account(Phase phase) {
    if (const auto border = trainable_.take_phase_entry_use()) add(*border, last_phase_);
    add(stream_.pool()->use(), phase);
    const StepTransfer now{others_.use().bytes_sent, others_.link_bytes()};
    if (phase == Phase::kFull) {
      need_.transfer = {now.bytes_sent - transferred_.bytes_sent,
                        now.link_bytes - transferred_.link_bytes};
    }
    transferred_ = now;
    stream_.pool()->reset_peaks();
    last_phase_ = phase;
  }
  void add(const MemoryUse& use, Phase phase) {
    PhaseMemory& taken = need_.phases[static_cast<std::size_t>(phase)];
    taken.peak_bytes = std::max(taken.peak_bytes, use.peak_total);
    include_larger(taken.by_kind, use.peak);
    need_.device_bytes = std::max(need_.device_bytes, use.peak_total);
  }

  /// Runs a step. First sends the weights of the last step, as a run does.
  PhaseOutcome step(PhaseMachine& machine) {
    trainable_.send_weights();
    return machine.step(whole_);
  }

  /// Runs one cycle of the phases, from Warmup to the first step of Correct.
  void predict(const PhaseMachine::Setup& setup, bool keeps) {
    scripted_.decide(keeps);
    if (config_.phases.traits().skips_backward)
      scripted_.keep_batches_of(longest_prediction(config_), setup.phases.max_predict_steps);
    PhaseMachine machine(scripted_, setup);
    const std::int64_t most =
        32 + 4 * setup.phases.skip_backward.history_interval + setup.phases.max_predict_steps;
    for (std::int64_t i = 0; i < most; ++i) {
      const PhaseOutcome outcome = step(machine);
      account(outcome.phase);
      if (outcome.phase == Phase::kCorrect) return;
    }
  }

  void find_learning_rate(const PhaseMachine::Setup& setup) {
    PhaseMachine machine(scripted_, setup);
    for (int i = 0; i < 2; ++i) account(step(machine).phase);
  }

  /// Simulates the reference model's forward passes over pairs of answers, which precede the
  /// trainer's allocations. Returns an empty result if the objective needs no reference model.
  PhaseMemory reference_phase() {
    if (config_.objective != "dpo") return {};
    const PhasePrecision precision(config_.mixed_precision, config_.model.width, stream_.device());
    for (const DType dtype :
         {precision.of(Phase::kFull).dtype, DType::kF32}) {  // training, validation
      model_->visit_parameters([&](Parameter& weight) { weight.compute_in(dtype, stream_); });
      const Batch pairs = model_->empty_batch(batch_form(config_, 1), stream_);
      ForwardOnlyTape tape(Pass{.training = false, .dtype = dtype});
      model_->forward(pairs, 1.0f, tape, stream_);
    }
    const MemoryUse use = stream_.pool()->use();
    stream_.pool()->reset_peaks();
    return {.peak_bytes = use.peak_total, .by_kind = use.peak};
  }

  /// Simulates evaluation of one window, the smallest unit of evaluation.
  void evaluate() {
    {
      const Batch window = windows_.examples(0, 1);
      ForwardOnlyTape tape(Pass{.training = false,
                                .segment = model_->segment_for(config_.memory.segment_length,
                                                               window.tokens_per_example())});
      model_->forward(window, 1.0f, tape, stream_);
    }
    trainable_.exchange_average();
    trainable_.exchange_average();
  }

  HybridTrainerConfig config_;
  SimulatedCommunicator others_;
  Stream stream_;
  Stream host_;
  std::shared_ptr<MemoryPlaces> places_;
  std::unique_ptr<Network> model_;
  PhaseMemory reference_;
  ModelTrainable trainable_;
  MemoryNeed need_;
  StepTransfer transferred_;  // bytes transferred so far
  SimulatedTrainable scripted_;
  std::vector<Batch> data_;
  Batch windows_;
  Batch whole_;  // a step's batch, of which a part is computed
  Phase last_phase_ = Phase::kWarmup;
};

}  // namespace

MemoryNeed simulate_memory(const HybridTrainerConfig& config, Device device, SimulatedPhases phases,
                           const ModelRegistry& registry, SimulatedRank rank,
                           MemoryListener* listener) {
  MemoryNeed need = SimulatedRun(config, device, registry, rank, listener).run(phases);
  for (const StageConfig& stage : config.stages) {
    if (!stage.precision) continue;
    HybridTrainerConfig other = config;
    other.mixed_precision.warmup = other.mixed_precision.full = *stage.precision;
    include_larger(need, SimulatedRun(other, device, registry, rank, listener).run(phases));
  }
  return need;
}

MemoryNeed simulate_ranks(const HybridTrainerConfig& config, Device device, int ranks,
                          SimulatedPhases phases, const ModelRegistry& registry) {
  MemoryNeed need;
  for (int rank = 0; rank < ranks; ++rank)
    include_larger(need, simulate_memory(config, device, phases, registry, {rank, ranks}));
  return need;
}

}  // namespace hybrid_trainer
