#include <boost/json.hpp>
#include <cstdio>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/memory/memory_report.h"
#include "hybrid_trainer/trainer/presets.h"
#include "hybrid_trainer/trainer/throughput_benchmark.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/device_option.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kGpt2Vocabulary = 50257;

boost::json::object as_json(const BenchmarkResult& result, const std::string& precision) {
  boost::json::object peaks;
  for (std::size_t k = 0; k < kMemoryKinds; ++k)
    peaks[name_of(static_cast<MemoryKind>(k))] = result.memory.peak[k];
  return {{"tokens_per_second", result.tokens_per_second},
          {"step_seconds", result.step_seconds},
          {"forward_seconds", result.forward_seconds},
          {"backward_seconds", result.backward_seconds},
          {"optimizer_seconds", result.optimizer_seconds},
          {"forward_only_seconds", result.forward_only_seconds},
          {"model_flops_per_second", result.model_flops_per_second},
          {"product_flops_per_second", result.product_flops_per_second},
          {"share_of_product_rate", result.share_of_product_rate},
          {"copy_bytes_per_second", result.copy_bytes_per_second},
          {"bytes_allocated_after_first_step", result.bytes_allocated_after_first_step},
          {"peak_bytes", peaks},
          {"peak_total_bytes", result.memory.peak_total},
          {"precision", precision},
          {"device", result.device},
          {"threads", threads()},
          {"instruction_set", name_of(instruction_set())}};
}

void print(const BenchmarkResult& result) {
  std::printf(
      "%.0f tokens/s: step %.1f ms = forward %.1f + backward %.1f + optimizer %.1f ms (medians)\n",
      result.tokens_per_second, 1e3 * result.step_seconds, 1e3 * result.forward_seconds,
      1e3 * result.backward_seconds, 1e3 * result.optimizer_seconds);
  std::printf("forward only, as a Predict step: %.1f ms, %.2f of a step\n",
              1e3 * result.forward_only_seconds, result.forward_only_seconds / result.step_seconds);
  std::printf("%.1f GFLOP/s of the model, %.1f of the best product: %.1f %%\n",
              1e-9 * result.model_flops_per_second, 1e-9 * result.product_flops_per_second,
              100 * result.share_of_product_rate);
  std::printf("allocated after the first step: %zu bytes; peaks:",
              result.bytes_allocated_after_first_step);
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    if (result.memory.peak[k] == 0) continue;
    std::printf(" %s %s", name_of(static_cast<MemoryKind>(k)),
                bytes_text(result.memory.peak[k]).c_str());
  }
  std::printf("\n");
}

}  // namespace

int bench_command(const std::vector<std::string>& arguments) {
  BenchmarkSettings settings;
  std::string preset, precision = "fp32", optimizer = "adamw", device = "auto";
  bool json = false;
  CommandSyntax syntax{
      .name = "bench",
      .usage = "--preset NAME [--batch 4] [--sequence 256] [--precision fp32|bf16] [options]",
      .description =
          "Times real training steps on random tokens against this machine's best matrix product.\n"
          "Forward includes the gradient of the output head, which is taken with its loss.",
      .operands = {}};
  auto add = syntax.options.add_options();
  add("preset", po::value(&preset)->required()->value_name("NAME"),
      "Model, as for `hybrid train`.");
  add("batch", po::value(&settings.batch)->value_name("B"), "Sequences a step (4).");
  add("sequence", po::value(&settings.sequence)->value_name("T"), "Tokens a sequence (256).");
  add("precision", po::value(&precision)->value_name("P"), "fp32 or bf16 (fp32).");
  add("optimizer", po::value(&optimizer)->value_name("NAME"), "adamw, sgd or muon (adamw).");
  add_device_option(syntax.options, device);
  add("steps", po::value(&settings.steps)->value_name("N"),
      "Steps to time, after one that is not (10).");
  add("json", po::bool_switch(&json), "Print one JSON object.");
  if (!parse_command_line(syntax, arguments)) return 0;

  HybridTrainerConfig config = preset_config(preset);
  config.data.batch_size = settings.batch;
  config.data.sequence_length = settings.sequence;
  config.optimizer.name = optimizer;
  config.validate();
  if (precision != "fp32" && precision != "bf16") {
    throw UsageError("bench: --precision " + precision + name_hint(precision, {"fp32", "bf16"}));
  }
  if (settings.steps < 1)
    throw UsageError(concat("bench: --steps ", settings.steps, "; want at least 1"));
  settings.model = config.model;
  if (settings.model.vocabulary == 0)
    settings.model.vocabulary = preset.starts_with("gpt2") ? kGpt2Vocabulary : 4096;
  settings.optimizer = config.optimizer;
  settings.bf16 = precision == "bf16";
  set_threads(processor_info().cores);
  const Stream stream(make_device_pool(device_of_option(device)));
  const BenchmarkResult result = run_throughput_benchmark(settings, stream);
  if (json) {
    std::cout << boost::json::serialize(as_json(result, precision)) << "\n";
  } else {
    print(result);
  }
  return 0;
}

}  // namespace hybrid_trainer
