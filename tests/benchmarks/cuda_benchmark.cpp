// Times every CUDA kernel of a GPT-2 124M step; see kHelp.
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "src/core/cuda_runtime.h"
#include "src/files/json.h"
#include "tests/benchmarks/cuda/device_timer.h"
#include "tests/benchmarks/cuda/paper_timer.h"
#include "tests/benchmarks/cuda/step_table.h"
#include "tests/benchmarks/program.h"

namespace hybrid_trainer::benchmarks {
namespace json = boost::json;
namespace {

constexpr const char* kHelp =
    R"(usage: cuda_benchmark [--scale full|small] [--precision bf16|fp32|both] [--only TEXT] [--device cuda] [--json]
       cuda_benchmark --paper CARD [--only TEXT]

Times each CUDA kernel of one GPT-2 124M training step at B = 64, T = 1024, and at the same sizes those of other models:
RMSNorm, rotary, SwiGLU, packed and windowed attention, decoding, NF4 and mixtures of experts. Prints the rate of each
and its share of the rate at which this device multiplies, copies or reads in the same run; bf16 and the update come
first.
At the end it prints the bytes and operations of each kernel of the bf16 step beside what the device's limit allows.

  --scale full|small  full needs an NVIDIA GPU with 24 GB free and takes about a minute; small is tiny, for
                      an emulated device, and its rates mean nothing (full)
  --precision P       dtype of activations and matrices (both)
  --only TEXT         kernels whose name holds TEXT
  --paper CARD        print that last table for a100, h100 or h200 by its data sheet: no device is needed, and each
                      time rests on the share of the card's limit that such a kernel is expected to reach
  --device NAME       cuda or cuda:N (cuda)
  --json              JSON, an object a line: the device and its rates, then each kernel as it comes (seconds, bytes
                      or operations a second); the table goes to standard error
)";

/// The first JSON line: device, sizes and rates.
json::object head_as_json(const DeviceTimer& timer, const std::string& scale) {
  const Rates& rates = timer.rates();
  return {{"device", cuda_runtime().properties(timer.stream().device().index).name},
          {"scale", scale},
          {"batch", timer.sizes().batch},
          {"sequence", timer.sizes().length},
          {"rates",
           {{"bf16_product_flops_per_second", rates.bf16_product},
            {"fp32_product_flops_per_second", rates.f32_product},
            {"copy_bytes_per_second", rates.copy},
            {"memcpy_bytes_per_second", rates.memcpy},
            {"read_bytes_per_second", rates.read}}}};
}

json::object as_json(const Timing& timing) {
  json::object object{{"name", timing.kernel.name},
                      {"dtype", name_of(timing.kernel.dtype)},
                      {"limit", name_of(timing.kernel.limit)},
                      {"calls_per_step", timing.kernel.calls_per_step},
                      {"in_bf16_step", in_bf16_step(timing.kernel)}};
  if (timing.problem.empty()) {
    object["seconds"] = timing.seconds;
    object["spread"] = timing.spread;
    object["rate"] = timing.rate();
    object["share"] = timing.share();
  } else {
    object["problem"] = timing.problem;
  }
  return object;
}

void print_head(std::FILE* to, const DeviceTimer& timer) {
  const Rates& rates = timer.rates();
  std::fprintf(to,
               "%s; products %.1f TFLOP/s bf16, %.1f f32; copy %.0f GB/s (cudaMemcpyAsync %.0f), "
               "read %.0f GB/s\n",
               cuda_runtime().properties(timer.stream().device().index).name.c_str(),
               rates.bf16_product / 1e12, rates.f32_product / 1e12, rates.copy / 1e9,
               rates.memcpy / 1e9, rates.read / 1e9);
}

void print(std::FILE* to, const Timing& timing) {
  const Kernel& kernel = timing.kernel;
  if (!timing.problem.empty()) {
    std::fprintf(to, "%-54s %-4s %s\n", kernel.name.c_str(), name_of(kernel.dtype),
                 timing.problem.c_str());
    return;
  }
  const bool product = kernel.limit == Limit::kProduct;
  std::fprintf(to, "%-54s %-4s %9.1f us x %3.0f %8.1f %-7s %3.0f %% of %-7s ±%.0f %%\n",
               kernel.name.c_str(), name_of(kernel.dtype), timing.seconds * 1e6,
               kernel.calls_per_step, timing.rate() / (product ? 1e12 : 1e9),
               product ? "TFLOP/s" : "GB/s", 100 * timing.share(), name_of(kernel.limit),
               50 * timing.spread);
}

/// Times bf16 kernels and updates first, because they make up the usual step.
void time_all(KernelTimer& timer, const std::string& precision) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    if (dtype == DType::kF32) time_updates(timer);
    if (precision == (dtype == DType::kBF16 ? "fp32" : "bf16")) continue;
    for (const auto time_some :
         {time_products, time_head, time_attention, time_rows, time_embedding, time_decoder_rows,
          time_scans, time_four_bit, time_mixture}) {
      time_some(timer, dtype);
      timer.stream().pool()->trim();
    }
  }
}

void estimate(const std::string& card, const std::string& only) {
  const Device nowhere{DeviceType::kCuda, 0, true};
  const Stream stream(make_device_pool(nowhere));
  PaperTimer timer(card_of(card), only, stream);
  time_all(timer, "bf16");
  print_step_table(stdout, timer, "estimated, on paper");
}

void run(const std::vector<std::string>& arguments) {
  const Options options(arguments, {"--scale", "--precision", "--only", "--device", "--paper"},
                        {"--json"});
  if (const std::string card = options.text("--paper", ""); !card.empty()) {
    return estimate(card, options.text("--only", ""));
  }
  const std::string scale = options.choice("--scale", "full", {"full", "small"});
  const std::string precision = options.choice("--precision", "both", {"bf16", "fp32", "both"});
  const Device device = find_device(options.text("--device", "cuda"));
  if (device.type != DeviceType::kCuda) throw UsageError("--device: want cuda or cuda:N");
  const Stream stream(make_device_pool(device));
  DeviceTimer timer(scale, options.text("--only", ""), stream);
  const bool lines = options.flag("--json");
  std::FILE* const people = lines ? stderr : stdout;
  if (lines) std::printf("%s\n", json_line(head_as_json(timer, scale)).c_str());
  print_head(people, timer);
  timer.report_to([&](const Timing& timing) {
    if (lines) std::printf("%s\n", json_line(as_json(timing)).c_str());
    print(people, timing);
    std::fflush(stdout);
  });
  time_all(timer, precision);
  print_step_table(people, timer, "measured");
  const auto failed = [](const Timing& timing) { return !timing.problem.empty(); };
  const auto count = std::count_if(timer.timings().begin(), timer.timings().end(), failed);
  if (count > 0) throw DeviceError(concat(count, " kernels could not be timed"));
}

}  // namespace
}  // namespace hybrid_trainer::benchmarks

int main(int count, char** arguments) {
  using namespace hybrid_trainer::benchmarks;
  return run_program(count, arguments, kHelp, run);
}
