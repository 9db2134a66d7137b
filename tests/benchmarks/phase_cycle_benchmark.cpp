// Times the spans of one phase cycle; see kHelp.
#include <boost/json.hpp>
#include <cstdio>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "src/core/cuda_runtime.h"
#include "src/core/machine.h"
#include "src/core/messages.h"
#include "src/files/json.h"
#include "tests/benchmarks/cuda/phase_cycle.h"
#include "tests/benchmarks/program.h"

namespace hybrid_trainer::benchmarks {
namespace json = boost::json;
namespace {

constexpr const char* kHelp =
    R"(usage: phase_cycle_benchmark [--preset gpt2-124m] [--batch 64] [--sequence 1024] [--precision bf16|fp32]
                             [--passes 10] [--lookahead 5] [--rounds 9] [--device cuda] [--scale full|small] [--json]

Lets a GPT-2 go through Full, Predict and Correct with its optimizer state moved to pinned host memory in Predict,
and prints what is live when, how long the copies take alone and which share of a restore forward passes hide:
1 - (passes beside a restore - passes) / restore alone, with as many passes as take twice a restore.

  --passes N          forward passes in Predict
  --lookahead N       passes of Predict that are left when the restore begins; below --passes
  --rounds N          times the copies are timed; medians count
  --device NAME       cuda or cuda:N; full scale needs an NVIDIA GPU and host memory for twice the state (2 GB at 124M)
  --scale small       a tiny model, for an emulated device; its times mean nothing
  --json              one JSON object
)";

CycleSettings settings_of(const Options& options) {
  CycleSettings settings;
  const bool small = options.choice("--scale", "full", {"full", "small"}) == "small";
  settings.model = preset_config(options.text("--preset", "gpt2-124m")).model;
  settings.model.vocabulary = 50257;
  if (small)
    settings.model = {.layers = 1, .heads = 2, .width = 16, .context = 16, .vocabulary = 64};
  settings.batch = options.number("--batch", small ? 2 : 64);
  settings.sequence = options.number("--sequence", small ? 16 : 1024);
  settings.bf16 = options.choice("--precision", "bf16", {"bf16", "fp32"}) == "bf16";
  settings.passes = options.number("--passes", small ? 3 : 10);
  settings.lookahead = options.number("--lookahead", small ? 1 : 5);
  settings.rounds = options.number("--rounds", small ? 1 : 9);
  if (settings.lookahead >= settings.passes)
    throw UsageError("--lookahead must be smaller than --passes");
  if (settings.sequence > settings.model.context)
    throw UsageError(concat("--sequence ", settings.sequence, "; the model knows ",
                            settings.model.context, " positions"));
  return settings;
}

/// The first span with this name.
const Mark& mark_of(const std::vector<Mark>& marks, const std::string& what) {
  for (const Mark& mark : marks) {
    if (mark.what == what) return mark;
  }
  throw Error(ExitCode::kInternal, "no span " + what);
}

struct Result {
  std::vector<Mark> marks;
  CopyTimes copies;
  std::string device;
  const Mark& full() const { return mark_of(marks, "Full step"); }
  const Mark& predict() const { return mark_of(marks, "first Predict pass"); }
};

json::object as_json(const Mark& mark) {
  json::object live;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
    live.emplace(name_of(static_cast<MemoryKind>(kind)), mark.device.live[kind]);
  return {{"what", mark.what},
          {"begin_seconds", mark.begin_seconds},
          {"seconds", mark.seconds},
          {"live_bytes", live},
          {"live_total_bytes", mark.device.live_total},
          {"peak_total_bytes", mark.device.peak_total},
          {"host_bytes", mark.host_bytes}};
}

json::object as_json(const Result& result, const CycleSettings& settings) {
  const CopyTimes& copies = result.copies;
  json::array time_line;
  for (const Mark& mark : result.marks) time_line.push_back(as_json(mark));
  return {{"device", result.device},
          {"layers", settings.model.layers},
          {"width", settings.model.width},
          {"batch", settings.batch},
          {"sequence", settings.sequence},
          {"precision", settings.bf16 ? "bf16" : "fp32"},
          {"full_live_bytes", result.full().device.live_total},
          {"predict_live_bytes", result.predict().device.live_total},
          {"full_peak_bytes", result.full().device.peak_total},
          {"predict_peak_bytes", result.predict().device.peak_total},
          {"state_bytes", copies.state_bytes},
          {"copy_out_call_seconds", copies.out_call},
          {"copy_out_seconds", copies.out},
          {"restore_call_seconds", copies.restore_call},
          {"restore_alone_seconds", copies.restore_alone},
          {"passes", copies.passes},
          {"passes_without_seconds", copies.passes_without},
          {"passes_with_seconds", copies.passes_without + copies.exposed},
          {"hidden_share", copies.hidden_share()},
          {"time_line", time_line}};
}

/// Live bytes in total and of each memory kind in use.
std::string memory_line(const MemoryUse& use) {
  std::string kinds;
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    if (use.live[k] == 0) continue;
    kinds += (kinds.empty() ? "" : ", ") + std::string(name_of(static_cast<MemoryKind>(k))) + " " +
             units::bytes(use.live[k]);
  }
  return units::bytes(use.live_total) + (kinds.empty() ? "" : " (" + kinds + ")");
}

void print(const Result& result) {
  std::printf("%s\n%10s %10s  %-20s %s\n", result.device.c_str(), "at ms", "took ms", "",
              "live on the device");
  for (const Mark& mark : result.marks) {
    std::printf("%10.2f %10.2f  %-20s %s; host %s\n", 1e3 * mark.begin_seconds, 1e3 * mark.seconds,
                mark.what.c_str(), memory_line(mark.device).c_str(),
                units::bytes(mark.host_bytes).c_str());
  }
  const CopyTimes& copies = result.copies;
  const double bytes = static_cast<double>(copies.state_bytes);
  std::printf("state of %s: out in %.2f ms (the call %.2f), %.1f GB/s\n",
              units::bytes(copies.state_bytes).c_str(), 1e3 * copies.out, 1e3 * copies.out_call,
              1e-9 * bytes / copies.out);
  std::printf("restore alone %.2f ms (the call %.2f), %.1f GB/s\n", 1e3 * copies.restore_alone,
              1e3 * copies.restore_call, 1e-9 * bytes / copies.restore_alone);
  std::printf(
      "%ld forward passes: %.2f ms, beside a restore %.2f ms; %.0f %% of the restore hidden\n",
      static_cast<long>(copies.passes), 1e3 * copies.passes_without,
      1e3 * (copies.passes_without + copies.exposed), 100 * copies.hidden_share());
}

void run(const std::vector<std::string>& arguments) {
  const Options options(arguments,
                        {"--preset", "--batch", "--sequence", "--precision", "--passes",
                         "--lookahead", "--rounds", "--device", "--scale"},
                        {"--json"});
  const CycleSettings settings = settings_of(options);
  const Device device = find_device(options.text("--device", "cuda"));
  if (device.type != DeviceType::kCuda) throw UsageError("--device: want cuda or cuda:N");
  set_threads(0);
  const Stream stream(make_device_pool(device));
  PhaseCycle cycle(settings, stream);
  Result result;
  result.device = cuda_runtime().properties(device.index).name;
  result.marks = cycle.run();
  result.copies = cycle.time_copies();
  const auto state = static_cast<std::size_t>(MemoryKind::kOptimizerState);
  require(result.full().device.live[state] > 0, "no optimizer state in Full");
  if (options.flag("--json")) {
    std::printf("%s\n", json_line(as_json(result, settings)).c_str());
  } else {
    print(result);
  }
}

}  // namespace
}  // namespace hybrid_trainer::benchmarks

int main(int count, char** arguments) {
  using namespace hybrid_trainer::benchmarks;
  return run_program(count, arguments, kHelp, run);
}
