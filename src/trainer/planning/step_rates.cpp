#include <filesystem>
#include <numeric>

#include "kernels/backend/machine.h"
#include "src/config/placement.h"
#include "src/core/clock.h"
#include "src/trainer/model_trainable.h"
#include "src/trainer/planning/step_cost.h"

namespace hybrid_trainer {

HybridTrainerConfig gradient_only(HybridTrainerConfig config) {
  config.memory = {};
  config.gradient_accumulation.micro_batches = 1;
  config.optimizer = {};
  config.predict_aware_memory.offload_strategy = "none";
  config.phases = {};  // delayed updates use other optimizers
  config.stages = {};
  return config;
}

double measure_gradient(Network& network, const HybridTrainerConfig& config, const Batch& batch,
                        const Stream& stream) {
  constexpr int kRuns = 5;
  constexpr double kMinSeconds = 0.3;
  ModelTrainable step(network, config, stream, make_host_pool(stream.device()),
                      [](const std::string&) {});
  const PhasePrecision precision(config.mixed_precision, config.model.width, stream.device());
  step.compute_in(precision.of(Phase::kFull), false);
  step.wait_for_gradient(batch);
  std::vector<double> seconds;
  const auto first = Clock::now();
  while (seconds.empty() || (std::ssize(seconds) < kRuns && seconds_since(first) < kMinSeconds)) {
    const auto begin = Clock::now();
    step.wait_for_gradient(batch);
    seconds.push_back(seconds_since(begin));
  }
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

namespace {

constexpr std::int64_t kWidestBlock = 512;  // wider ones are hardly faster
constexpr double kMeasuredFlops = 3e9;      // minimum FLOPs of a measured step

struct TimedWork {
  double flops = 0, seconds = 0;
  double rate() const { return flops / seconds; }
  TimedWork less(const TimedWork& other) const {
    return {flops - other.flops, seconds - other.seconds};
  }
  /// Returns whether the rate is close to that of all work; otherwise another program disturbed it.
  bool is_plausible(const TimedWork& all) const {
    constexpr double kMax = 4;
    return flops > 0 && seconds > 0 && rate() < kMax * all.rate() && kMax * rate() > all.rate();
  }
};

double flops_of(const ModelConfig& model, const ModelRegistry& registry) {
  const Stream simulated_stream(make_device_pool({DeviceType::kCpu, 0, true}));
  const auto network = make_network(model, 0, simulated_stream, registry);
  return network->step_flops(network->empty_batch({.examples = 1}, simulated_stream));
}

/// Returns a smaller network with equally fast parts.
ModelConfig narrowed(ModelConfig model, const ModelFamily& family) {
  if (family.shortened) model = family.shortened(model);
  if (model.width <= kWidestBlock) return model;
  const std::int64_t heads = std::max<std::int64_t>(1, model.heads * kWidestBlock / model.width);
  model.heads = kWidestBlock % heads == 0 ? heads : kWidestBlock / 64;
  model.intermediate_size = model.intermediate_size * kWidestBlock / model.width;
  model.width = kWidestBlock;
  return model;
}

TimedWork measure(const HybridTrainerConfig& config, const ModelConfig& model,
                  std::int64_t examples, const Stream& stream, const ModelRegistry& registry) {
  HybridTrainerConfig sample = gradient_only(config);
  sample.model = model;
  sample.data.batch_size = examples;
  sample.parts.clear();
  sample.lora = {};
  const auto network = make_network(model, 0, stream, registry);
  const Batch batch = network->empty_batch({.examples = examples}, stream);
  for (const NamedTensor& one : batch.tensors()) fill_zero(one.tensor, stream);
  return {network->step_flops(batch), measure_gradient(*network, sample, batch, stream)};
}

/// Measures the FLOPs per second of forward and backward, for a network of several parts that is
/// not a language model. Runs few examples with stacks of one and two blocks: the difference is one
/// block, the remainder all other parts. Combines both by their shares of the FLOPs. Wide or long
/// networks are measured narrower and shorter.
double measure_network_flops(const HybridTrainerConfig& config, const Stream& stream,
                             const ModelRegistry& registry) {
  const ModelFamily& family = find_family(config.model.family, registry);
  const auto& with_depth = family.with_depth;
  const ModelConfig model = resolved_model_config(config.model, registry),
                    less = narrowed(model, family);
  const auto wanted =
      static_cast<std::int64_t>(kMeasuredFlops / flops_of(with_depth(less, 2), registry));
  const std::int64_t examples = std::clamp<std::int64_t>(wanted, 1, config.data.batch_size);
  const TimedWork one = measure(config, with_depth(less, 1), examples, stream, registry),
                  two = measure(config, with_depth(less, 2), examples, stream, registry);
  const TimedWork block = two.less(one), rest = one.less(block);
  if (!block.is_plausible(two) || !rest.is_plausible(two)) return two.rate();
  const double all = flops_of(model, registry);
  const double other_flops =
      2 * flops_of(with_depth(model, 1), registry) - flops_of(with_depth(model, 2), registry);
  return all / (other_flops / rest.rate() + (all - other_flops) / block.rate());
}

/// Size of the copied array: smaller than any budget, so that measuring fits in the run's memory.
constexpr std::size_t kCopiedBytes = std::size_t{24} << 20;

/// Maximum width of a measured block. Wider blocks are hardly faster.
constexpr std::int64_t kWidest = 768, kTokens = 1024;

/// Returns one block of the model (narrowed if wide) and of its encoder, on few tokens.
HybridTrainerConfig sample_of(const HybridTrainerConfig& config, const ModelRegistry& registry) {
  HybridTrainerConfig sample = config;
  ModelConfig& model = sample.model;
  model.encoder = resolved_model_config(config.model, registry).encoder;
  if (model.width > kWidest) {
    constexpr std::int64_t kHeads = kWidest / 64;  // with as many queries per head as the model
    if (model.kv_heads > 0)
      model.kv_heads = std::max<std::int64_t>(1, model.kv_heads * kHeads / model.heads);
    model.heads = kHeads;
    model.head_size = 0;
    model.intermediate_size = model.intermediate_size * kWidest / model.width;
    StateSpaceConfig& mixer = model.state_space;
    mixer.heads = mixer.heads * kWidest / model.width;
    if (mixer.heads > 0) mixer.groups = std::gcd(mixer.groups, mixer.heads);
    if (model.encoder.layers > 0) model.encoder.heads = kHeads;
    model.encoder.intermediate_size = model.encoder.intermediate_size * kWidest / model.width;
    model.experts.intermediate_size = model.experts.intermediate_size * kWidest / model.width;
    model.experts.shared_width = model.experts.shared_width * kWidest / model.width;
    model.width = kWidest;
  }
  if (model.experts.count > 0) {  // with as many rows per expert as the model's layers
    constexpr std::int64_t kExperts = 8;
    const std::int64_t count = std::min(kExperts, model.experts.count);
    model.experts.chosen =
        std::max<std::int64_t>(1, model.experts.chosen * count / model.experts.count);
    model.experts.count = count;
    model.experts.layers.clear();
  }
  model.layers = 1;
  model.window_layers = model.window_layers.substr(0, 1);
  model.mixers = model.mixers.substr(0, 1);
  model.vocabulary = 256;
  sample.data.sequence_length = std::min<std::int64_t>(config.data.sequence_length, 256);
  sample.data.batch_size =
      std::clamp<std::int64_t>(config.data.batch_size, 1, kTokens / sample.data.sequence_length);
  if (model.encoder.layers > 0) {
    model.encoder.layers = 1;
    model.encoder.context = std::min(model.encoder.context, kTokens);
    sample.data.batch_size = 1;  // each example also has a source
  }
  return gradient_only(std::move(sample));
}

/// Returns a decoder block of the network's width, for networks with unknown stacks.
HybridTrainerConfig decoder_of_width(HybridTrainerConfig config) {
  constexpr std::int64_t kHeadSize = 64;
  const std::int64_t heads =
      std::clamp<std::int64_t>(config.model.width / kHeadSize, 1, kWidest / kHeadSize);
  config.model = {.heads = heads, .width = heads * kHeadSize, .context = 256};
  config.data.sequence_length = config.model.context;
  config.data.layout = DataConfig{}.layout;
  config.parts.clear();
  return sample_of(config, model_families());
}

/// Returns different tokens, so that routers have a choice.
Tensor different_tokens(const Shape& shape, std::int64_t vocabulary, const Stream& stream) {
  const Stream host(MemoryPool::create("host"));
  const Tensor tokens = Tensor::empty(shape, DType::kI32, MemoryKind::kData, host);
  for (std::int64_t i = 0; i < tokens.elements(); ++i)
    tokens.data<std::int32_t>()[i] = static_cast<std::int32_t>(i % vocabulary);
  return wait_for_device(tokens, stream);
}

double measure_flops(const HybridTrainerConfig& config, const Stream& stream,
                     const ModelRegistry& registry) {
  const ModelFamily& family = find_family(config.model.family, registry);
  if (family.with_depth) return measure_network_flops(config, stream, registry);
  const HybridTrainerConfig sample =
      family.is_language_model ? sample_of(config, registry) : decoder_of_width(config);
  const ModelRegistry& families = family.is_language_model ? registry : model_families();
  const auto model = make_model(sample.model, 0, stream, families);
  const Shape shape{sample.data.batch_size, sample.data.sequence_length};
  const Tensor tokens = different_tokens(shape, sample.model.vocabulary, stream);
  const Batch batch = model->with_sources(token_batch(tokens, tokens), stream);
  return model->step_flops(batch) / measure_gradient(*model, sample, batch, stream);
}

void measure_files(StepRates& rates, const std::string& folder) {
  constexpr auto kBytes = static_cast<std::int64_t>(kCopiedBytes);
  const Stream host(make_device_pool()), file(make_file_pool({}, folder, "memory.folder"));
  const Tensor here = Tensor::zeros({kBytes}, DType::kU8, MemoryKind::kWorkspace, host),
               there = Tensor::empty_like(here, MemoryKind::kWorkspace, file);
  copy(there, here, host);
  const auto begin = Clock::now();
  copy(there, here, host);
  rates.write_bytes_per_second = static_cast<double>(kBytes) / seconds_since(begin);
  const auto written = Clock::now();
  copy(here, there, host);
  rates.read_bytes_per_second = static_cast<double>(kBytes) / seconds_since(written);
}

}  // namespace

std::optional<std::size_t> free_disk_space(const HybridTrainerConfig& config) {
  std::error_code unknown;
  const auto space = std::filesystem::space(config.memory.folder, unknown);
  if (config.memory.folder.empty() || unknown) return {};
  return space.available;
}

StepRates measure_step_rates(const HybridTrainerConfig& config, const Stream& stream,
                             const ModelRegistry& registry) {
  StepRates rates;
  rates.flops_per_second = measure_flops(config, stream, registry);
  rates.copy_bytes_per_second = kernels::measure_copy_rate(stream, kCopiedBytes);
  if (uses_place(config, "file") || !config.memory.folder.empty())
    measure_files(rates, config.memory.scratch_folder());
  return rates;
}

}  // namespace hybrid_trainer
