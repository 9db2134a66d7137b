#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <iostream>

#include "hybrid_trainer/benchmark/throughput_benchmark.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/trainer/hybrid_trainer_config.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/device_option.h"

namespace hybrid_trainer {
namespace {

boost::json::array profile_json(const BenchmarkResult& result) {
  boost::json::array rows;
  for (std::size_t p = 0; p < kStepParts; ++p) {
    for (std::size_t w = 0; w < kWorks; ++w) {
      const auto part = static_cast<StepPart>(p);
      const auto work = static_cast<Work>(w);
      const Profile::Entry& entry = result.profile.of(part, work);
      if (entry.calls == 0) continue;
      rows.push_back({{"part", name_of(part)},
                      {"work", name_of(work)},
                      {"seconds", entry.seconds / result.profiled_steps},
                      {"calls", entry.calls / result.profiled_steps}});
    }
  }
  return rows;
}

/// Milliseconds of a step by work and part; the rest is time outside kernels.
void print_profile(const BenchmarkResult& result) {
  const double per_step = 1e3 / result.profiled_steps, step = per_step * result.profiled_seconds;
  std::printf("\n%-14s%10s%10s%10s%10s%8s%8s\n", "ms a step", "forward", "backward", "update",
              "together", "share", "calls");
  double known = 0;
  for (std::size_t w = 0; w < kWorks; ++w) {
    const auto work = static_cast<Work>(w);
    const Profile::Entry sum = result.profile.of(work);
    if (sum.calls == 0) continue;
    known += per_step * sum.seconds;
    std::printf("%-14s", name_of(work));
    for (const StepPart part : {StepPart::kForward, StepPart::kBackward, StepPart::kUpdate})
      std::printf("%10.2f", per_step * result.profile.of(part, work).seconds);
    std::printf("%10.2f%7.1f%%%8lld\n", per_step * sum.seconds, 100 * per_step * sum.seconds / step,
                static_cast<long long>(sum.calls / result.profiled_steps));
  }
  std::printf("%-14s%30s%10.2f%7.1f%%\n", "rest", "", step - known, 100 * (step - known) / step);
  std::printf("%-14s%30s%10.2f\n", "step", "", step);
}

boost::json::object as_json(const BenchmarkResult& result) {
  boost::json::object peaks;
  for (std::size_t k = 0; k < kMemoryKinds; ++k)
    peaks[name_of(static_cast<MemoryKind>(k))] = result.memory.peak[k];
  boost::json::object object{
      {"tokens_per_second", result.tokens_per_second},
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
      {"precision", result.precision},
      {"device", result.device},
      {"threads", threads()},
      {"instruction_set", name_of(instruction_set())}};
  if (result.mfu) object["mfu"] = *result.mfu;
  return object;
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
  if (result.mfu) std::printf("%.1f %% MFU, of the device's published rate\n", 100 * *result.mfu);
  std::printf("allocated after the first step: %zu bytes; peaks:",
              result.bytes_allocated_after_first_step);
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    if (result.memory.peak[k] == 0) continue;
    std::printf(" %s %s", name_of(static_cast<MemoryKind>(k)),
                units::bytes(result.memory.peak[k]).c_str());
  }
  std::printf("\n");
}

}  // namespace

int bench_command(const std::vector<std::string>& arguments) {
  BenchmarkSettings settings;
  std::int64_t sequence = -1;  // as given
  std::string preset, precision = "fp32", optimizer = "adamw", device = "auto";
  bool json = false, profile = false;
  CommandSyntax syntax{
      .name = "bench",
      .usage = "--preset NAME [--batch 4] [--sequence T] [--precision fp32|bf16|auto] [options]",
      .description =
          "Times real training steps on random tokens against this machine's best matrix product.\n"
          "Forward includes the gradient of the output head, which is taken with its loss.",
      .operands = {}};
  auto add = syntax.options.add_options();
  add("preset", po::value(&preset)->required()->value_name("NAME"),
      "Model, as for `hybrid train`.");
  add("batch", po::value(&settings.batch)->value_name("B"), "Sequences a step (4).");
  add("sequence", po::value(&sequence)->value_name("T"),
      "Tokens a sequence (256, or the model's context where that is shorter).");
  add("precision", po::value(&precision)->value_name("P"),
      "fp32, bf16, or auto: what training takes on this machine (fp32).");
  add("optimizer", po::value(&optimizer)->value_name("NAME"),
      concat("One of ", join(optimizer_names()), " (adamw).").c_str());
  add_device_option(syntax.options, device);
  add("steps", po::value(&settings.steps)->value_name("N"),
      "Steps to time, after one that is not (10).");
  add("profile", po::bool_switch(&profile),
      "Also print where the time of a step goes, each kernel waited for.");
  add("json", po::bool_switch(&json), "Print one JSON object.");
  if (!parse_command_line(syntax, arguments)) return 0;

  HybridTrainerConfig config = preset_config(preset);
  if (sequence < 0) sequence = std::min(settings.sequence, config.model.context);
  if (sequence < 1 || sequence > config.model.context) {
    throw UsageError(concat("bench: --sequence ", sequence, "; want 1 to ", config.model.context,
                            ", the model's context"));
  }
  if (settings.batch < 1)
    throw UsageError(concat("bench: --batch ", settings.batch, "; want at least 1"));
  settings.sequence = sequence;
  config.data.batch_size = settings.batch;
  config.data.sequence_length = settings.sequence;
  config.optimizer.name = optimizer;
  config.validate();
  const std::vector<std::string> precisions{"fp32", "bf16", "auto"};
  if (std::find(precisions.begin(), precisions.end(), precision) == precisions.end())
    throw UsageError("bench: --precision " + precision + name_hint(precision, precisions));
  if (settings.steps < 1)
    throw UsageError(concat("bench: --steps ", settings.steps, "; want at least 1"));
  settings.model = config.model;
  for (const ModelPreset& one : find_family(config.model.family).presets) {
    if (one.name == preset) settings.model.vocabulary = one.vocabulary;
  }
  settings.optimizer = config.optimizer;
  settings.precision = precision;
  set_threads(processor_info().cores);
  Stream stream(make_device_pool(device_of_option(device)));
  const BenchmarkResult result = run_throughput_benchmark(settings, stream);
  if (json) {
    boost::json::object object = as_json(result);
    if (profile) object["profile"] = profile_json(result);
    std::cout << boost::json::serialize(object) << "\n";
  } else {
    print(result);
    if (profile) print_profile(result);
  }
  return 0;
}

}  // namespace hybrid_trainer
