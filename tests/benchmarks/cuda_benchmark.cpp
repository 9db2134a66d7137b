// Times every CUDA kernel of a GPT-2 124M step; see kHelp.
#include <cstdio>

#include "hybrid_trainer/core/cuda_runtime.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/observability/json_writer.h"
#include "tests/benchmarks/cuda/kernel_timing.h"
#include "tests/benchmarks/program.h"

namespace hybrid_trainer::benchmarks {
namespace {

constexpr const char* kHelp =
    R"(usage: cuda_benchmark [--scale full|small] [--precision bf16|fp32|both] [--only TEXT] [--device cuda] [--json]

Times each CUDA kernel of one GPT-2 124M training step at B = 64, T = 1024 and prints its rate and its share of
the rate at which this device multiplies, copies or reads in the same run.

  --scale full|small  full needs an NVIDIA GPU with 24 GB free and takes about half a minute; small is tiny, for
                      an emulated device, and its rates mean nothing (full)
  --precision P       dtype of activations and matrices (both)
  --only TEXT         kernels whose name holds TEXT
  --device NAME       cuda or cuda:N (cuda)
  --json              one JSON object: seconds, bytes or operations a second
)";

std::string as_json(const KernelTimer& timer, const std::string& scale) {
  JsonWriter json;
  json.begin_object();
  json.string("device", cuda_runtime().properties(timer.stream().device().index).name);
  json.string("scale", scale);
  json.number("batch", timer.sizes().batch);
  json.number("sequence", timer.sizes().length);
  json.begin_object("rates");
  json.number("bf16_product_flops_per_second", timer.rates().bf16_product, 5);
  json.number("fp32_product_flops_per_second", timer.rates().f32_product, 5);
  json.number("copy_bytes_per_second", timer.rates().copy, 5);
  json.number("read_bytes_per_second", timer.rates().read, 5);
  json.end_object();
  json.begin_array("kernels");
  for (const Timing& timing : timer.timings()) {
    json.begin_object();
    json.string("name", timing.kernel.name);
    json.string("dtype", name_of(timing.kernel.dtype));
    json.string("limit", name_of(timing.kernel.limit));
    json.number("calls_per_step", timing.kernel.calls_per_step, 6);
    json.number("seconds", timing.seconds, 5);
    json.number("spread", timing.spread, 3);
    json.number("rate", timing.rate, 5);
    json.number("share", timing.share(), 4);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.text();
}

void print(const KernelTimer& timer) {
  const Rates& rates = timer.rates();
  std::printf("%s; products %.1f TFLOP/s bf16, %.1f f32; copy %.0f GB/s, read %.0f GB/s\n",
              cuda_runtime().properties(timer.stream().device().index).name.c_str(),
              rates.bf16_product / 1e12, rates.f32_product / 1e12, rates.copy / 1e9,
              rates.read / 1e9);
  double step_seconds = 0;
  for (const Timing& timing : timer.timings()) {
    const Kernel& kernel = timing.kernel;
    const bool product = kernel.limit == Limit::kProduct;
    std::printf("%-40s %-4s %9.1f us x %3.0f %8.1f %-7s %3.0f %% of %-7s ±%.0f %%\n",
                kernel.name.c_str(), name_of(kernel.dtype), timing.seconds * 1e6,
                kernel.calls_per_step, timing.rate / (product ? 1e12 : 1e9),
                product ? "TFLOP/s" : "GB/s", 100 * timing.share(), name_of(kernel.limit),
                50 * timing.spread);
    const bool in_bf16_step = kernel.dtype == DType::kBF16 || kernel.name.find("adamw") == 0 ||
                              kernel.name == "sum_of_squares";
    if (in_bf16_step) step_seconds += timing.seconds * kernel.calls_per_step;
  }
  std::printf("these kernels of one bf16 step together: %.2f ms\n", 1e3 * step_seconds);
}

void run(const std::vector<std::string>& arguments) {
  const Options options(arguments, {"--scale", "--precision", "--only", "--device"}, {"--json"});
  const std::string scale = options.choice("--scale", "full", {"full", "small"});
  const std::string precision = options.choice("--precision", "both", {"bf16", "fp32", "both"});
  const Device device = find_device(options.text("--device", "cuda"));
  if (device.type != DeviceType::kCuda) throw UsageError("--device: want cuda or cuda:N");
  const Stream stream(make_device_pool(device));
  KernelTimer timer(scale, options.text("--only", ""), stream);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    if (precision == (dtype == DType::kBF16 ? "fp32" : "bf16")) continue;
    for (const auto time_all :
         {time_products, time_head, time_attention, time_rows, time_embedding}) {
      time_all(timer, dtype);
      stream.pool()->trim();
    }
  }
  time_updates(timer);
  if (options.flag("--json")) {
    std::printf("%s\n", as_json(timer, scale).c_str());
  } else {
    print(timer);
  }
}

}  // namespace
}  // namespace hybrid_trainer::benchmarks

int main(int count, char** arguments) {
  using namespace hybrid_trainer::benchmarks;
  return run_program(count, arguments, kHelp, run);
}
