#include <algorithm>
#include <filesystem>
#include <numeric>
#include <vector>

#include "hybrid_trainer/config/placement.h"
#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/core/token_batch.h"
#include "hybrid_trainer/kernels/machine_rates.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/planning/memory_plan.h"
#include "src/planning/gradient_time.h"
#include "src/planning/network_speed.h"

namespace hybrid_trainer {
namespace {

/// Of an array that is copied: little beside any budget, so that what a planned run measures first
/// takes no more than it does itself.
constexpr std::size_t kCopiedBytes = std::size_t{24} << 20;

/// The widest block that is measured: wider ones hardly multiply faster.
constexpr std::int64_t kWidest = 768, kTokens = 1024;

/// One block of the model, or of a narrower one, and of its encoder, on few tokens.
HybridTrainerConfig sample_of(const HybridTrainerConfig& config, const ModelRegistry& registry) {
  HybridTrainerConfig sample = config;
  ModelConfig& model = sample.model;
  model.encoder = resolved_model_config(config.model, registry).encoder;
  if (model.width > kWidest) {
    constexpr std::int64_t kHeads = kWidest / 64;  // shared by as many queries as the model's
    if (model.key_heads > 0)
      model.key_heads = std::max<std::int64_t>(1, model.key_heads * kHeads / model.heads);
    model.heads = kHeads;
    model.head_size = 0;
    model.inner_width = model.inner_width * kWidest / model.width;
    StateSpaceConfig& mixer = model.state_space;
    mixer.heads = mixer.heads * kWidest / model.width;
    if (mixer.heads > 0) mixer.groups = std::gcd(mixer.groups, mixer.heads);
    if (model.encoder.layers > 0) model.encoder.heads = kHeads;
    model.encoder.inner_width = model.encoder.inner_width * kWidest / model.width;
    model.experts.inner_width = model.experts.inner_width * kWidest / model.width;
    model.experts.shared_width = model.experts.shared_width * kWidest / model.width;
    model.width = kWidest;
  }
  if (model.experts.count > 0) {  // as many rows to an expert as the model's layers give
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
    sample.data.batch_size = 1;  // each example has a source beside its tokens
  }
  return gradient_alone(std::move(sample));
}

/// Of a network whose stacks are not known, a decoder's block of its width.
HybridTrainerConfig decoder_beside(HybridTrainerConfig config) {
  constexpr std::int64_t kHeadSize = 64;
  const std::int64_t heads =
      std::clamp<std::int64_t>(config.model.width / kHeadSize, 1, kWidest / kHeadSize);
  config.model = {.heads = heads, .width = heads * kHeadSize, .context = 256};
  config.data.sequence_length = config.model.context;
  config.data.layout = DataConfig{}.layout;
  config.parts.clear();
  return sample_of(config, model_families());
}

/// Each token in turn, so that routers have a choice.
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
      family.is_of_language ? sample_of(config, registry) : decoder_beside(config);
  const ModelRegistry& families = family.is_of_language ? registry : model_families();
  const auto model = make_model(sample.model, 0, stream, families);
  const Shape shape{sample.data.batch_size, sample.data.sequence_length};
  const Tensor tokens = different_tokens(shape, sample.model.vocabulary, stream);
  const Batch batch = model->with_sources(token_batch(tokens, tokens), stream);
  return model->flops_of(shape) / measure_gradient(*model, sample, batch, stream);
}

/// As tensors move that lie there.
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
