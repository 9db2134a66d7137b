#include "src/run/benchmark.h"

#include <algorithm>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/product_rounding.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "kernels/backend/machine.h"
#include "src/core/clock.h"
#include "src/trainer/planning/device_memory.h"

namespace hybrid_trainer {

namespace {

/// Returns the median. If the number of values is even, returns the larger of the two middle
/// values. `values` must not be empty.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Batch random_batch(const BenchmarkSettings& settings, const Stream& stream) {
  const Shape shape{settings.batch, settings.sequence};
  const bool on_processor = stream.device().type == DeviceType::kCpu;
  const Stream host(on_processor ? stream.pool() : MemoryPool::create("host"));
  const Tensor tokens = Tensor::empty(shape, DType::kI32, MemoryKind::kData, host),
               targets = Tensor::empty(shape, DType::kI32, MemoryKind::kData, host);
  const auto words = static_cast<std::uint64_t>(settings.model.vocabulary);
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    tokens.data<std::int32_t>()[i] =
        static_cast<std::int32_t>(random_below({1}, static_cast<std::uint64_t>(i), words));
    targets.data<std::int32_t>()[i] =
        static_cast<std::int32_t>(random_below({2}, static_cast<std::uint64_t>(i), words));
  }
  return token_batch(wait_for_device(tokens, stream), wait_for_device(targets, stream));
}

Batch batch_for(Network& network, const BenchmarkSettings& settings, const Stream& stream) {
  if (const auto* const model = dynamic_cast<const LanguageModel*>(&network))
    return model->with_sources(random_batch(settings, stream), stream);
  const Batch batch = network.empty_batch(
      {.examples = settings.batch, .sequence_length = settings.sequence}, stream);
  for (const NamedTensor& part : batch.tensors()) fill_zero(part.tensor, stream);
  return batch;
}

/// Returns a configuration of plain training at a constant rate, so that all steps cost the same.
HybridTrainerConfig config_of(const BenchmarkSettings& settings) {
  HybridTrainerConfig config;
  config.model = settings.model;
  config.objective = usual_objective(settings.model);
  config.optimizer = settings.optimizer;
  config.optimizer.learning_rate = 1e-4;
  config.schedule.name = "constant";
  config.data.batch_size = settings.batch;
  config.data.sequence_length = settings.sequence;
  config.phases.max_predict_steps = 0;
  config.phases.warmup_steps = 0;
  config.mixed_precision = MixedPrecisionConfig::all(settings.precision);
  return config;
}

double wait_for_forward_only(LossModel& model, const Batch& batch, const Pass& pass,
                             const Stream& stream) {
  const auto begin = Clock::now();
  ForwardOnlyTape tape(pass);
  model.forward(batch, 1.0f, tape, stream);
  stream.synchronize();
  return seconds_since(begin);
}

class Subject {
 public:
  Subject(const BenchmarkSettings& settings, Stream& stream)
      : stream_(stream),
        model_(make_network(settings.model, 0, stream)),
        trainer_(*model_, config_of(settings), stream),
        batch_(batch_for(*model_, settings, stream)) {}

  std::vector<double> step(int count) {
    std::vector<double> seconds;
    for (int i = 0; i < count; ++i) {
      const auto begin = Clock::now();
      const MemoryUse use = trainer_.step(batch_).device_memory;
      seconds.push_back(seconds_since(begin));
      memory_.peak_total = std::max(memory_.peak_total, use.peak_total);
      for (std::size_t k = 0; k < kMemoryKinds; ++k)
        memory_.peak[k] = std::max(memory_.peak[k], use.peak[k]);
    }
    return seconds;
  }

  /// Runs `count` more steps and times forward, backward and optimizer. Waits for each kernel.
  void time_parts(int count, BenchmarkResult& result) {
    std::vector<double> parts[kStepParts];
    stream_.set_profile(&profile_);
    for (int i = 0; i < count; ++i) {
      std::array<double, kStepParts> before{};
      for (std::size_t part = 0; part < kStepParts; ++part) before[part] = seconds_of(part);
      result.profiled_seconds += step(1).front();
      for (std::size_t part = 0; part < kStepParts; ++part)
        parts[part].push_back(seconds_of(part) - before[part]);
    }
    stream_.set_profile(nullptr);
    result.profile = profile_;
    result.profiled_steps = count;
    result.forward_seconds = median(parts[0]);
    result.backward_seconds = median(parts[1]);
    result.optimizer_seconds = median(parts[2]);
  }

  double forward_only(int count) {
    ProductRounding rounding(all_parameters(*model_), stream_, stream_);
    rounding.set_form(precision().products);
    const bool rounds = precision().products != ProductForm::kAsStored;
    const Pass pass{.training = false, .dtype = dtype(), .products = rounds ? &rounding : nullptr};
    std::vector<double> seconds;
    for (int i = 0; i < count; ++i)
      seconds.push_back(wait_for_forward_only(*model_, batch_, pass, stream_));
    return median(seconds);
  }

  const Precision& precision() const { return trainer_.precision().of(Phase::kFull); }
  DType dtype() const { return precision().dtype; }
  std::int64_t tokens() const { return batch_.tokens(); }
  double flops() { return model_->step_flops(batch_); }
  const MemoryUse& memory() const { return memory_; }

 private:
  double seconds_of(std::size_t part) const {
    return profile_.seconds_of(static_cast<StepPart>(part));
  }
  Stream& stream_;
  std::unique_ptr<Network> model_;
  HybridTrainer trainer_;
  Batch batch_;
  Profile profile_;
  MemoryUse memory_;
};

DType dtype_of(const BenchmarkSettings& settings, const Stream& stream) {
  if (settings.precision == "auto")
    return automatic_precision(settings.model.width, stream.device()).dtype;
  return settings.precision == "bf16" ? DType::kBF16 : DType::kF32;
}

/// Returns the bytes of weights that the products and norms read for one token. Counts a token
/// table only if it is also the head, because an embedding reads only one row of it.
double weight_bytes(LanguageModel& model, DType dtype) {
  double bytes = 0, tables = 0;
  bool has_head = false;
  model.visit_parameters([&](const Parameter& parameter) {
    const bool is_vector = parameter.role() == Role::kVector;
    const double all = static_cast<double>(parameter.elements()) *
                       static_cast<double>(size_of(is_vector ? DType::kF32 : dtype));
    has_head |= parameter.role() == Role::kHead;
    if (parameter.role() != Role::kEmbedding) {
      bytes += all;
    } else if (parameter.shape()[0] >= model.config().vocabulary) {
      tables += all;
    }
  });
  return has_head ? bytes : bytes + tables;
}

/// Sequences of random tokens. Each call of time_token adds one token to every sequence.
class RandomTexts {
 public:
  RandomTexts(LanguageModel& model, const BenchmarkSettings& settings, std::int64_t count,
              std::int64_t tokens, const Stream& stream)
      : decoder_(model, {.texts = count, .tokens = settings.sequence + tokens},
                 dtype_of(settings, stream), stream) {
    std::vector<std::int32_t> text;
    while (std::ssize(text) < settings.sequence) text.push_back(next_token());
    for (std::int64_t row = 0; row < count; ++row) decoder_.begin(row, text);
  }
  double time_token() {
    std::vector<BatchDecoder::Next> tokens;
    for (std::int64_t row = 0; row < decoder_.rows(); ++row) tokens.push_back({row, next_token()});
    const auto begin = Clock::now();
    decoder_.add(tokens);
    return seconds_since(begin);
  }

 private:
  std::int32_t next_token() {
    const auto words = static_cast<std::uint64_t>(decoder_.vocabulary());
    return static_cast<std::int32_t>(random_below({1}, drawn_++, words));
  }
  BatchDecoder decoder_;
  std::uint64_t drawn_ = 0;
};

}  // namespace

double published_bf16_rate(const std::string& device_name) {
  static const std::pair<const char*, double> rates[] = {
      {"A100", 312e12},     {"L40S", 362e12},   {"H100 PCIe", 756e12},
      {"H100 NVL", 835e12}, {"H100", 989e12},   {"GH200", 989e12},
      {"H200", 989e12},     {"GB200", 2500e12}, {"B200", 2250e12},
  };
  for (const auto& [name, rate] : rates) {
    if (device_name.find(name) != std::string::npos) return rate;
  }
  return 0;
}

BenchmarkResult run_throughput_benchmark(const BenchmarkSettings& settings, Stream& stream) {
  BenchmarkResult result;
  prepare_device(stream);
  reserve_device_memory(config_of(settings), stream, "a smaller batch");
  Subject subject(settings, stream);
  const DType dtype = subject.dtype();
  result.precision = precision_name(subject.precision());
  const double rate_before = kernels::measure_product_rate(dtype, stream);
  stream.pool()->trim();
  subject.step(1);
  const std::size_t fresh = stream.pool()->use().fresh_total;
  result.step_seconds = median(subject.step(settings.steps));
  result.bytes_allocated_after_first_step = stream.pool()->use().fresh_total - fresh;
  subject.time_parts(std::max(3, settings.steps / 2), result);
  result.memory = subject.memory();
  result.forward_only_seconds = subject.forward_only(settings.steps / 2 + 1);

  result.tokens_per_second = static_cast<double>(subject.tokens()) / result.step_seconds;
  result.model_flops_per_second = subject.flops() / result.step_seconds;
  result.product_flops_per_second =
      std::max(rate_before, kernels::measure_product_rate(dtype, stream));
  result.copy_bytes_per_second = kernels::measure_copy_rate(stream);
  result.device = hardware_name_of(stream.device());
  result.share_of_product_rate = result.model_flops_per_second / result.product_flops_per_second;
  const double published = published_bf16_rate(result.device);
  if (subject.precision() == Precision{DType::kBF16} && published > 0)
    result.mfu = result.model_flops_per_second / published;
  return result;
}

GenerationRates run_generation_benchmark(const BenchmarkSettings& settings, std::int64_t tokens,
                                         const Stream& stream) {
  const DType dtype = dtype_of(settings, stream);
  const auto model = make_model(settings.model, 0, stream);
  model->visit_parameters([&](Parameter& parameter) { parameter.compute_in(dtype, stream); });
  const double rate_before = kernels::measure_read_rate(stream);

  RandomTexts alone(*model, settings, 1, tokens, stream);
  std::optional<RandomTexts> together;
  if (settings.batch > 1) together.emplace(*model, settings, settings.batch, tokens, stream);
  std::vector<double> seconds, batch_seconds;
  for (std::int64_t i = 0; i < tokens; ++i) {
    seconds.push_back(alone.time_token());
    if (together) batch_seconds.push_back(together->time_token());
  }

  GenerationRates rates;
  rates.token_seconds = median(seconds);
  rates.tokens_per_second = 1 / rates.token_seconds;
  rates.batch = settings.batch;
  rates.batch_token_seconds = together ? median(batch_seconds) : rates.token_seconds;
  rates.batch_tokens_per_second = static_cast<double>(rates.batch) / rates.batch_token_seconds;
  rates.batch_gain = rates.batch_tokens_per_second / rates.tokens_per_second;
  rates.weight_bytes = weight_bytes(*model, dtype);
  rates.read_bytes_per_second = std::max(rate_before, kernels::measure_read_rate(stream));
  rates.share_of_read_rate = rates.weight_bytes / rates.token_seconds / rates.read_bytes_per_second;
  rates.precision = precision_name({dtype});
  rates.device = hardware_name_of(stream.device());
  return rates;
}

}  // namespace hybrid_trainer
