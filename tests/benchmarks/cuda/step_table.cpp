#include "tests/benchmarks/cuda/step_table.h"

namespace hybrid_trainer::benchmarks {
namespace {

/// Sums over one step.
struct Sum {
  double calls = 0, bytes = 0, operations = 0, limit_seconds = 0, seconds = 0;

  void add(const Timing& timing) {
    const double times = timing.kernel.calls_per_step;
    calls += times;
    bytes += times * timing.bytes;
    operations += timing.kernel.limit == Limit::kProduct ? times * timing.amount : 0;
    limit_seconds += times * timing.amount / timing.limit_rate;
    seconds += times * timing.seconds;
  }
};

void print_row(std::FILE* to, const char* name, const Sum& sum) {
  std::fprintf(to, "%-40s %8.0f %8.2f %8.2f %9.2f %9.2f %6.0f %%\n", name, sum.calls,
               sum.bytes / 1e9, sum.operations / 1e12, 1e3 * sum.limit_seconds, 1e3 * sum.seconds,
               100 * sum.limit_seconds / sum.seconds);
}

}  // namespace

void print_step_table(std::FILE* to, const KernelTimer& timer, const char* timed) {
  std::fprintf(to, "\nOne bf16 step of %lld x %lld tokens, times %s:\n",
               static_cast<long long>(timer.sizes().batch),
               static_cast<long long>(timer.sizes().length), timed);
  std::fprintf(to, "%-40s %8s %8s %8s %9s %9s %8s\n", "kernel", "calls", "GB", "TFLOP", "limit ms",
               "ms", "share");
  Sum all;
  for (const Timing& timing : timer.timings()) {
    const bool counts = timing.kernel.calls_per_step > 0 && timing.problem.empty();
    if (!counts || !in_bf16_step(timing.kernel)) continue;
    Sum row;
    row.add(timing);
    all.add(timing);
    print_row(to, timing.kernel.name.c_str(), row);
  }
  if (all.calls == 0) return;
  print_row(to, "sum", all);
  std::fprintf(to, "%.0f tokens a second without gaps between kernels\n",
               static_cast<double>(timer.sizes().rows()) / all.seconds);
}

}  // namespace hybrid_trainer::benchmarks
