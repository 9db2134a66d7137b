#include "tests/benchmarks/cuda/device_timer.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/backend/machine.h"
#include "src/core/cuda_runtime.h"
#include "tests/benchmarks/program.h"

namespace hybrid_trainer::benchmarks {
namespace {

constexpr int kTimedRows = 5;               // series of launches
constexpr double kRowSeconds = 0.015;       // goal for the duration of a series
constexpr std::size_t kCachesPerRound = 4;  // bytes of all sets, in sizes of the L2 cache
constexpr std::size_t kFarBeyondCaches = 20;
constexpr std::size_t kMaxSets = 64;
constexpr std::size_t kMaxLaunches = 400;

}  // namespace

DeviceTimer::DeviceTimer(const std::string& scale, std::string only, const Stream& stream)
    : KernelTimer(sizes_of(scale), std::move(only), stream),
      small_(scale == "small"),
      cache_bytes_(cuda_runtime().properties(stream.device().index).cache_bytes) {
  measure_rates();
}

Timing DeviceTimer::timed(const Kernel& kernel, const std::function<Work()>& make) const {
  std::vector<Work> sets;
  std::size_t bytes = 0;
  do {
    sets.push_back(make());
    bytes += sets.back().footprint_bytes;
  } while (bytes < kCachesPerRound * cache_bytes_ && sets.size() < (small_ ? 2 : kMaxSets));
  seconds_of_launch(sets, sets.size());  // warms up
  const double once = seconds_of_launch(sets, sets.size());
  const auto wanted = static_cast<std::size_t>(kRowSeconds / std::max(once, 1e-7));
  const std::size_t launches =
      small_ ? sets.size() : std::clamp(wanted, sets.size(), std::max(kMaxLaunches, sets.size()));
  std::vector<double> rows;
  for (int row = 0; row < (small_ ? 1 : kTimedRows); ++row)
    rows.push_back(seconds_of_launch(sets, launches));
  const auto [shortest, longest] = std::minmax_element(rows.begin(), rows.end());
  Timing timing{.kernel = kernel, .problem = "", .seconds = median(rows)};
  timing.spread = (*longest - *shortest) / timing.seconds;
  timing.amount = sets.front().amount;
  timing.bytes = bytes_of(kernel, sets.front());
  timing.limit_rate = rates_.of(kernel);
  require(std::isfinite(timing.rate()) && timing.rate() > 0, "a kernel took no time");
  return timing;
}

double DeviceTimer::seconds_of_launch(const std::vector<Work>& sets, std::size_t launches) const {
  Event begin, end;
  begin.record(stream());
  for (std::size_t i = 0; i < launches; ++i) sets[i % sets.size()].run();
  end.record(stream());
  end.synchronize();
  return Event::seconds_between(begin, end) / static_cast<double>(launches);
}

/// Copies random numbers whose size far exceeds the cache.
double DeviceTimer::measure_memcpy_rate() const {
  const auto elements = static_cast<std::int64_t>(kFarBeyondCaches * cache_bytes_ / sizeof(float));
  const Tensor from = random({small_ ? 256 : elements}, DType::kF32);
  const Tensor to = random(from.shape(), DType::kF32);
  const Work work{bytes_of({from, to}), 0, [&] { copy(to, from, stream()); }};
  double best = 1e30;
  for (int row = 0; row < (small_ ? 1 : kTimedRows); ++row)
    best = std::min(best, seconds_of_launch({work}, small_ ? 1 : 10));
  return work.amount / best;
}

/// Measures like kernels/backend/machine.h; at the small scale, uses one tiny copy and product.
void DeviceTimer::measure_rates() {
  rates_.memcpy = measure_memcpy_rate();
  if (!small_) {
    rates_.bf16_product = kernels::measure_product_rate(DType::kBF16, stream());
    rates_.f32_product = kernels::measure_product_rate(DType::kF32, stream());
    rates_.copy = kernels::measure_copy_rate(stream());
    rates_.read = kernels::measure_read_rate(stream());
    return;
  }
  const Tensor x = random({16, 16}, DType::kF32), y = random({16, 16}, DType::kF32);
  const Work copies{bytes_of({x, y}), 0, [&] { kernels::cast(y, x, stream()); }};
  rates_.copy = rates_.read = copies.amount / seconds_of_launch({copies}, 1);
  const Work product{2.0 * 16 * 16 * 16, 0, [&] {
                       kernels::matmul(y, x, kernels::Transpose::kNo, x, kernels::Transpose::kYes,
                                       kernels::GradientMode::kOverwrite, stream());
                     }};
  rates_.bf16_product = rates_.f32_product = product.amount / seconds_of_launch({product}, 1);
}

}  // namespace hybrid_trainer::benchmarks
