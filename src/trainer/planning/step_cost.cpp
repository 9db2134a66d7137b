#include "src/trainer/planning/step_cost.h"

#include "hybrid_trainer/config/phase_precision.h"
#include "hybrid_trainer/nn/residual_block.h"
#include "src/core/machine.h"
#include "src/optim/make_optimizer.h"
#include "src/trainer/run_model.h"
#include "src/trainer/sharding/weight_parts.h"

namespace hybrid_trainer {

namespace {

double live(const MemoryNeed& need, MemoryKind kind) {
  return static_cast<double>(need.phase(Phase::kFull).by_kind[static_cast<std::size_t>(kind)]);
}

/// Bytes per f32 weight that an update reads and writes: the weight, its gradient and its state.
constexpr double kUpdateBytes = 12;

/// Returns the time of an 8-bit update on the CPU divided by the time of a 32-bit update.
double eight_bit_update() { return instruction_set() == InstructionSet::kAvx512 ? 1.6 : 2.6; }

/// Time of rounding activations to 8 bits and back, divided by the time of copying them.
constexpr double kRounding = 1.5;

/// Share of a block's activations that are results of element-wise operations.
constexpr double kRebuiltElementwise = 0.4;

/// Share of forward in a pass: backward has two products for each product of forward.
constexpr double kForwardShare = 1.0 / 3;

double bytes_of(const std::vector<Parameter*>& weights, std::size_t first, std::size_t last) {
  double elements = 0;
  for (std::size_t i = first; i < last; ++i)
    elements += static_cast<double>(weights[i]->elements());
  return elements * static_cast<double>(size_of(DType::kF32));
}

double beyond(double sending, double time) { return std::max(0.0, sending - time); }

}  // namespace

StepCost::StepCost(const HybridTrainerConfig& config, Device device, const MemoryNeed& as_given,
                   const StepRates& rates, const ModelRegistry& registry)
    : rates_(rates),
      simulated_stream_(make_device_pool({device.type, device.index, true})),
      model_(make_run_model(config, {}, simulated_stream_, registry)),
      registry_(registry) {
  weight_bytes_ = live(as_given, MemoryKind::kGradients);  // same size, f32
  compute_bytes_ = live(as_given, MemoryKind::kParameters);
  state_bytes_ = live(as_given, MemoryKind::kOptimizerState);
  activation_bits_ = config.memory.activation_bits;
  state_bits_ = static_cast<double>(config.optimizer.state_bits);
  activation_bytes_ = live(as_given, MemoryKind::kActivations);
  model_->visit_parameters([&](Parameter& parameter) {
    if (parameter.role() != Role::kVector)
      weights_.emplace_back(parameter.name(), static_cast<double>(parameter.elements()));
  });
  if (config.phases.traits().delays_updates) return;  // delayed updates overlap with the step
  const PhasePrecision precision(config.mixed_precision, config.model.width, device);
  const std::vector<Parameter*> parameters = trainable_parameters(*model_);
  for (Parameter* parameter : parameters)
    parameter->compute_in(precision.of(Phase::kFull).dtype, simulated_stream_);
  update_flops_ = update_flops(config.optimizer, parameters, simulated_stream_);
}

double StepCost::weight_transfers(const MemoryConfig& memory, double passes) const {
  const DeviceMap map(memory);
  double all = 0, seconds = 0;
  for (const auto& [name, elements] : weights_) all += elements;
  for (const auto& [name, elements] : weights_) {
    const std::string& place = map.place_of(name);
    seconds +=
        elements / all *
        (back(passes * compute_bytes_ + weight_bytes_, place) + there(compute_bytes_, place));
  }
  return seconds;
}

/// Returns the share of segments whose forward is repeated in backward, for `time` tokens.
double StepCost::recomputation(const MemoryConfig& memory, std::int64_t time) const {
  const std::int64_t segment = model_->segment_for(memory.segment_length, time);
  if (segment == 0) return 0;
  const std::int64_t segments = (time + segment - 1) / segment;
  return static_cast<double>(std::max<std::int64_t>(0, segments - memory.kept_segments)) /
         static_cast<double>(segments);
}

Network& StepCost::network_of(const HybridTrainerConfig& config) const {
  if (!recomputes_parts(config)) return *model_;
  if (!with_parts_) with_parts_ = make_run_model(config, {}, simulated_stream_, registry_);
  return *with_parts_;
}

double StepCost::products(const HybridTrainerConfig& config) const {
  Network& network = network_of(config);
  const Batch batch =
      network.empty_batch(batch_form(config, config.effective_batch()), simulated_stream_);
  const double all = model_->recomputed_flops(batch, 1);
  const double again = network.recomputed_flops(batch, config.memory.recompute);
  const double flops = network.step_flops(batch) + again +
                       recomputation(config.memory, batch.tokens_per_example()) * all;
  const double share =
      std::max(recomputes_parts(config) ? 0 : config.memory.recompute, all > 0 ? again / all : 0);
  const double rebuilt_bytes = std::min(share, kRebuiltElementwise) * activation_bytes_;
  return flops / rates_.flops_per_second + 2 * rebuilt_bytes / rates_.copy_bytes_per_second;
}

double StepCost::placements(const HybridTrainerConfig& config) const {
  const MemoryConfig& memory = config.memory;
  const double state = state_bytes(config);
  const std::string home = config.optimizer_state_home();
  const bool compressed = memory.activation_bits == 8 && activation_bits_ > 8;
  const double all = activation_bytes_ * (1 - 0.9 * memory.recompute);
  const double kept = compressed ? 0.4 * all : all;
  const double rounding = compressed ? kRounding * 2 * all / rates_.copy_bytes_per_second : 0;
  const double micro_batches = static_cast<double>(config.gradient_accumulation.micro_batches);
  const double passes = micro_batches * (2 + memory.recompute);
  const bool wait = memory.gradients == "consume" && !config.updates_at_once();
  const double gradients = wait ? there(weight_bytes_, "host") : 0;
  return rounding + there(kept, memory.activations) + back(kept, memory.activations) +
         there(state, home) + back(state, home) + weight_transfers(memory, passes) + gradients;
}

double StepCost::update_seconds(const HybridTrainerConfig& config) const {
  const bool rounds = config.optimizer.state_bits == 8 && state_bits_ > 8;
  const double bytes =
      (kUpdateBytes / 4 * weight_bytes_ + 2 * state_bytes_) * (rounds ? eight_bit_update() : 1);
  return bytes / rates_.copy_bytes_per_second + update_flops_ / rates_.flops_per_second;
}

double StepCost::seconds(const HybridTrainerConfig& config) const {
  const double accumulation =
      2 * weight_bytes_ * static_cast<double>(config.gradient_accumulation.micro_batches - 1);
  return products(config) + update_seconds(config) + accumulation / rates_.copy_bytes_per_second +
         placements(config);
}

RankStepTime estimate_rank_step(const HybridTrainerConfig& config, Device device, int ranks,
                                const StepTransfer& transfer, const StepRates& rates,
                                double link_bytes_per_second, const ModelRegistry& registry) {
  HybridTrainerConfig own = config;
  own.distributed = {};
  const std::int64_t all = config.gradient_accumulation.micro_batches;
  own.gradient_accumulation.micro_batches = (all + ranks - 1) / ranks;
  const StepCost cost(own, device,
                      simulate_memory(own, device, SimulatedPhases::kUpdates, registry), rates,
                      registry);
  const std::int64_t zero = config.distributed.zero;
  const double update = cost.update_seconds(own), passes = cost.seconds(own) - update;
  const double pass = passes / static_cast<double>(own.gradient_accumulation.micro_batches);
  const double forward = kForwardShare * pass, backward = pass - forward;

  RankStepTime time;
  time.computing = passes + update / (zero > 0 ? ranks : 1);
  time.sending = static_cast<double>(transfer.link_bytes) / link_bytes_per_second;
  if (!config.distributed.overlap) {
    time.exposed = time.sending;
    return time;
  }
  const Stream simulated_stream(make_device_pool({device.type, device.index, true}));
  const auto model = make_run_model(config, {}, simulated_stream, registry);
  const std::vector<Parameter*> weights = trainable_parameters(*model);
  const double others = static_cast<double>(ranks - 1) / ranks / link_bytes_per_second;
  const double updated = others * bytes_of(weights, 0, weights.size());
  const WeightGroup edge =
      group_weights(weights, bucket_bytes_for(weights, config.distributed)).back();
  const double at_edge = others * bytes_of(weights, edge.first, edge.last);
  if (zero == 3) {
    time.exposed = beyond(time.sending, passes) + 2 * at_edge;
  } else {
    const double gathered = zero == 0 ? 0 : updated;
    time.exposed = beyond(time.sending - gathered, zero == 2 ? passes - forward : backward) +
                   beyond(gathered, forward) + (zero == 0 ? 1 : 2) * at_edge;
  }
  time.exposed = std::min(time.exposed, time.sending);
  return time;
}

}  // namespace hybrid_trainer
