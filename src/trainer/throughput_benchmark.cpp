#include "hybrid_trainer/trainer/throughput_benchmark.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "hybrid_trainer/core/cuda_runtime.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/machine_rates.h"
#include "hybrid_trainer/models/gpt2.h"
#include "hybrid_trainer/nn/initialization.h"
#include "hybrid_trainer/optim/gradient_norm.h"
#include "hybrid_trainer/optim/make_optimizer.h"

namespace hybrid_trainer {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Batch random_batch(const BenchmarkSettings& settings, const Stream& stream) {
  const Shape shape{settings.batch, settings.sequence};
  const bool on_processor = stream.device().type == DeviceType::kCpu;
  const Stream host(on_processor ? stream.pool() : MemoryPool::create("host"));
  const Batch batch{Tensor::empty(shape, DType::kI32, MemoryKind::kData, host),
                    Tensor::empty(shape, DType::kI32, MemoryKind::kData, host)};
  const auto words = static_cast<std::uint64_t>(settings.model.vocabulary);
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    batch.inputs.data<std::int32_t>()[i] =
        static_cast<std::int32_t>(random_below({1}, static_cast<std::uint64_t>(i), words));
    batch.targets.data<std::int32_t>()[i] =
        static_cast<std::int32_t>(random_below({2}, static_cast<std::uint64_t>(i), words));
  }
  return {wait_for_device(batch.inputs, stream), wait_for_device(batch.targets, stream)};
}

/// The model under test with everything one step needs.
class Subject {
 public:
  Subject(const BenchmarkSettings& settings, const Stream& stream)
      : pass_{.training = true, .dtype = settings.bf16 ? DType::kBF16 : DType::kF32},
        clip_norm_(settings.optimizer.clip_norm),
        model_(settings.model, 0, stream),
        batch_(random_batch(settings, stream)),
        stream_(stream) {
    allocate_gradients([&](const ParameterVisitor& visit) { model_.visit_parameters(visit); },
                       stream);
    model_.visit_parameters([&](Parameter& parameter) {
      parameters_.push_back(&parameter);
      if (!settings.bf16 || !parameter.is_matrix) return;
      parameter.working =
          Tensor::empty(parameter.value.shape(), DType::kBF16, MemoryKind::kParameters, stream);
      kernels::cast(parameter.working, parameter.value, stream);
    });
    optimizer_ = make_optimizer(settings.optimizer, parameters_, stream);
  }

  void step() {
    PlainTape tape(pass_);
    for (Parameter* parameter : parameters_) parameter->clear_gradient();
    const auto begin = Clock::now();
    model_.forward(batch_, 1.0f, tape, stream_);
    stream_.synchronize();
    forward.push_back(seconds_since(begin));
    model_.backward(batch_, tape, stream_);
    stream_.synchronize();
    backward.push_back(seconds_since(begin) - forward.back());
    const float scale = clip_scale(wait_for_gradient_norm(parameters_, stream_), clip_norm_);
    optimizer_->step(1e-4f, scale, stream_);
    stream_.synchronize();
    total.push_back(seconds_since(begin));
    optimizer.push_back(total.back() - forward.back() - backward.back());
  }

  double wait_for_forward_only() {
    const auto begin = Clock::now();
    ForwardOnlyTape tape(pass_);
    model_.forward(batch_, 1.0f, tape, stream_);
    stream_.synchronize();
    return seconds_since(begin);
  }

  void forget_times() {
    for (auto* times : {&forward, &backward, &optimizer, &total}) times->clear();
  }
  std::vector<double> forward, backward, optimizer, total;

 private:
  Pass pass_;
  double clip_norm_;
  Gpt2 model_;
  Batch batch_;
  std::vector<Parameter*> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  const Stream& stream_;
};

}  // namespace

BenchmarkResult run_throughput_benchmark(const BenchmarkSettings& settings, const Stream& stream) {
  BenchmarkResult result;
  const DType dtype = settings.bf16 ? DType::kBF16 : DType::kF32;
  const double rate_before = kernels::measure_product_rate(dtype, stream);
  Subject subject(settings, stream);
  stream.pool()->trim();
  stream.pool()->reset_peaks();
  subject.step();
  subject.forget_times();
  const std::size_t fresh = stream.pool()->use().fresh_total;
  for (int i = 0; i < settings.steps; ++i) subject.step();
  result.memory = stream.pool()->use();
  result.bytes_allocated_after_first_step = result.memory.fresh_total - fresh;
  std::vector<double> forward_only;
  for (int i = 0; i <= settings.steps / 2; ++i)
    forward_only.push_back(subject.wait_for_forward_only());

  result.forward_seconds = median(subject.forward);
  result.backward_seconds = median(subject.backward);
  result.optimizer_seconds = median(subject.optimizer);
  result.forward_only_seconds = median(forward_only);
  result.step_seconds = median(subject.total);
  result.tokens_per_second =
      static_cast<double>(settings.batch * settings.sequence) / result.step_seconds;
  result.model_flops_per_second =
      gpt2_step_flops(settings.model, settings.batch, settings.sequence) / result.step_seconds;
  result.product_flops_per_second =
      std::max(rate_before, kernels::measure_product_rate(dtype, stream));
  result.copy_bytes_per_second = kernels::measure_copy_rate(stream);
  result.device = stream.device().type == DeviceType::kCpu
                      ? "cpu"
                      : cuda_runtime().properties(stream.device().index).name;
  result.share_of_product_rate = result.model_flops_per_second / result.product_flops_per_second;
  return result;
}

}  // namespace hybrid_trainer
