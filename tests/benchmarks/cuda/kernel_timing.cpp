#include "tests/benchmarks/cuda/kernel_timing.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/cuda_runtime.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/machine_rates.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "tests/benchmarks/program.h"

namespace hybrid_trainer::benchmarks {
namespace {

constexpr int kTimedRows = 5;               // of launches
constexpr double kRowSeconds = 0.015;       // what one row is to take
constexpr std::size_t kCachesPerRound = 4;  // bytes of all sets, in second-level caches
constexpr std::size_t kFarBeyondCaches = 20;
constexpr std::size_t kMostSets = 16;
constexpr std::size_t kMostLaunches = 400;

}  // namespace

Sizes sizes_of(const std::string& scale) {
  if (scale == "small") return {2, 32, 1, 128, 150, 192, 3000, {64, 32, 16}};
  return {64, 1024, 12, 768, 50257, 50304, 124'475'904, {8192, 4096, 512}};
}

const char* name_of(Limit limit) {
  return limit == Limit::kProduct ? "product" : limit == Limit::kCopy ? "copy" : "read";
}

bool in_bf16_step(const Kernel& kernel) {
  return kernel.dtype == DType::kBF16 || kernel.name.starts_with("adamw") ||
         kernel.name == "sum_of_squares";
}

double bytes_of(std::initializer_list<Tensor> tensors) {
  double bytes = 0;
  for (const Tensor& tensor : tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

KernelTimer::KernelTimer(const std::string& scale, std::string only, const Stream& stream)
    : small_(scale == "small"),
      sizes_(sizes_of(scale)),
      only_(std::move(only)),
      stream_(stream),
      cache_bytes_(cuda_runtime().properties(stream.device().index).cache_bytes) {
  const Stream host(MemoryPool::create("noise"));
  const std::int64_t count = small_ ? 1 << 10 : 1 << 23;
  const Tensor numbers = Tensor::empty({count}, DType::kF32, MemoryKind::kWorkspace, host);
  float* const out = numbers.data<float>();
#pragma omp parallel for
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = 2 * to_unit_float(random_word({7}, static_cast<std::uint64_t>(i))) - 1;
  }
  noise_ = wait_for_device(numbers, stream);
  measure_rates();
}

Tensor KernelTimer::random(const Shape& shape, DType dtype) const {
  const Tensor values = Tensor::empty(shape, dtype, MemoryKind::kWorkspace, stream_);
  const Tensor flat = values.view({values.elements()});
  for (std::int64_t begin = 0; begin < flat.elements(); begin += noise_.elements()) {
    const std::int64_t end = std::min(flat.elements(), begin + noise_.elements());
    kernels::cast(flat.rows(begin, end), noise_.rows(0, end - begin), stream_);
  }
  return values;
}

Tensor KernelTimer::tokens(const Shape& shape) const {
  const Stream host(MemoryPool::create("tokens"));
  const Tensor drawn = Tensor::empty(shape, DType::kI32, MemoryKind::kWorkspace, host);
  for (std::int64_t i = 0; i < drawn.elements(); ++i) {
    drawn.data<std::int32_t>()[i] = static_cast<std::int32_t>(random_below(
        {8}, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(sizes_.vocabulary)));
  }
  return wait_for_device(drawn, stream_);
}

void KernelTimer::time(const Kernel& kernel, const std::function<Work()>& make) {
  if (kernel.name.find(only_) == std::string::npos) return;
  try {
    timings_.push_back(timed(kernel, make));
  } catch (const Error& error) {
    timings_.push_back({.kernel = kernel, .problem = error.what()});
  }
  if (listener_) listener_(timings_.back());
}

Timing KernelTimer::timed(const Kernel& kernel, const std::function<Work()>& make) const {
  std::vector<Work> sets;
  std::size_t bytes = 0;
  do {
    sets.push_back(make());
    bytes += sets.back().footprint_bytes;
  } while (bytes < kCachesPerRound * cache_bytes_ && sets.size() < (small_ ? 2 : kMostSets));
  seconds_of_launch(sets, sets.size());  // warms up
  const double once = seconds_of_launch(sets, sets.size());
  const auto wanted = static_cast<std::size_t>(kRowSeconds / std::max(once, 1e-7));
  const std::size_t launches =
      small_ ? sets.size() : std::clamp(wanted, sets.size(), std::max(kMostLaunches, sets.size()));
  std::vector<double> rows;
  for (int row = 0; row < (small_ ? 1 : kTimedRows); ++row)
    rows.push_back(seconds_of_launch(sets, launches));
  const auto [shortest, longest] = std::minmax_element(rows.begin(), rows.end());
  Timing timing{.kernel = kernel, .problem = "", .seconds = median(rows)};
  timing.spread = (*longest - *shortest) / timing.seconds;
  timing.rate = sets.front().amount / timing.seconds;
  timing.limit_rate = limit_of(kernel);
  require(std::isfinite(timing.rate) && timing.rate > 0, "a kernel took no time");
  return timing;
}

double KernelTimer::seconds_of_launch(const std::vector<Work>& sets, std::size_t launches) const {
  Event begin, end;
  begin.record(stream_);
  for (std::size_t i = 0; i < launches; ++i) sets[i % sets.size()].run();
  end.record(stream_);
  end.synchronize();
  return Event::seconds_between(begin, end) / static_cast<double>(launches);
}

double KernelTimer::limit_of(const Kernel& kernel) const {
  if (kernel.limit == Limit::kCopy) return rates_.copy;
  if (kernel.limit == Limit::kRead) return rates_.read;
  return kernel.dtype == DType::kBF16 ? rates_.bf16_product : rates_.f32_product;
}

/// Of copies between numbers without a pattern, much larger than the cache.
double KernelTimer::measure_memcpy_rate() const {
  const auto elements = static_cast<std::int64_t>(kFarBeyondCaches * cache_bytes_ / sizeof(float));
  const Tensor from = random({small_ ? 256 : elements}, DType::kF32);
  const Tensor to = random(from.shape(), DType::kF32);
  const Work work{bytes_of({from, to}), 0, [&] { copy(to, from, stream_); }};
  double best = 1e30;
  for (int row = 0; row < (small_ ? 1 : kTimedRows); ++row)
    best = std::min(best, seconds_of_launch({work}, small_ ? 1 : 10));
  return work.amount / best;
}

/// Those of kernels/machine_rates.h; at the small scale, whose numbers mean nothing, of one tiny
/// copy and product.
void KernelTimer::measure_rates() {
  rates_.memcpy = measure_memcpy_rate();
  if (!small_) {
    rates_.bf16_product = kernels::measure_product_rate(DType::kBF16, stream_);
    rates_.f32_product = kernels::measure_product_rate(DType::kF32, stream_);
    rates_.copy = kernels::measure_copy_rate(stream_);
    rates_.read = kernels::measure_read_rate(stream_);
    return;
  }
  const Tensor x = random({16, 16}, DType::kF32), y = random({16, 16}, DType::kF32);
  const Work copies{bytes_of({x, y}), 0, [&] { kernels::cast(y, x, stream_); }};
  rates_.copy = rates_.read = copies.amount / seconds_of_launch({copies}, 1);
  const Work product{2.0 * 16 * 16 * 16, 0, [&] {
                       kernels::matmul(y, x, kernels::Transpose::kNo, x, kernels::Transpose::kYes,
                                       kernels::GradientMode::kOverwrite, stream_);
                     }};
  rates_.bf16_product = rates_.f32_product = product.amount / seconds_of_launch({product}, 1);
}

}  // namespace hybrid_trainer::benchmarks
