#include "src/tools/rank_plan.h"

#include <cstdio>
#include <iostream>

#include "hybrid_trainer/core/machine_memory.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/planning/rank_step_time.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

json::object by_kind(const PhaseMemory& memory) {
  json::object kinds;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
    kinds[name_of(static_cast<MemoryKind>(kind))] = memory.by_kind[kind];
  return kinds;
}

/// Name and memory of each phase that a run comes into.
std::vector<std::pair<const char*, const PhaseMemory*>> columns_of(const MemoryNeed& need) {
  std::vector<std::pair<const char*, const PhaseMemory*>> columns;
  if (need.reference.peak_bytes > 0) columns.emplace_back("reference", &need.reference);
  for (const Phase phase : kAllPhases)
    if (need.phase(phase).peak_bytes > 0) columns.emplace_back(name_of(phase), &need.phase(phase));
  return columns;
}

/// Bytes a second; none where it was not asked.
std::optional<MemorySize> link_rate(const std::string& link) {
  if (link.empty()) return {};
  const std::optional<MemorySize> rate = MemorySize::parse(link);
  if (rate && rate->bytes > 0) return rate;
  throw UsageError(concat("plan: --link: got ", link, ", want bytes a second, such as 125MB"));
}

void add_times(json::object& answer, const std::optional<RankStepTime>& time) {
  answer["link_seconds_per_step"] = time ? json::value(time->sending) : nullptr;
  answer["computing_seconds_per_step"] = time ? json::value(time->computing) : nullptr;
  answer["exposed_seconds_per_step"] = time ? json::value(time->exposed) : nullptr;
  answer["seconds_per_step"] = time ? json::value(time->seconds()) : nullptr;
}

void print_times(const RankStepTime& time, const MemorySize& rate) {
  std::printf(
      "a step takes      about %s s: %s s of computing at this machine's speed, and %s s of\n"
      "                  the %s s that a link of %s a second is busy, which nothing hides\n",
      brief(time.seconds()).c_str(), brief(time.computing).c_str(), brief(time.exposed).c_str(),
      brief(time.sending).c_str(), rate.text().c_str());
}

}  // namespace

void print_device_memory(const char* name, std::size_t bytes,
                         const std::optional<std::size_t>& budget,
                         const std::optional<CudaShare>& cuda) {
  const std::size_t beside = cuda ? cuda->sum() : 0;
  const std::string of = budget ? concat(" of ", units::bytes(*budget + beside)) : "";
  std::printf("%-18s%s%s\n", name, units::bytes(bytes + beside).c_str(), of.c_str());
  if (!cuda) return;
  const std::string context =
      cuda->context == 0 ? "" : concat(", ", units::bytes(cuda->context), " for its context");
  std::printf("  %-16s%s\n  %-16s%s: %s kept free for its libraries%s\n", "the run",
              units::bytes(bytes).c_str(), "CUDA", units::bytes(beside).c_str(),
              units::bytes(cuda->libraries).c_str(), context.c_str());
}

void add_device_memory(json::object& answer, std::size_t bytes,
                       const std::optional<CudaShare>& cuda) {
  answer["device_peak_bytes"] = bytes;
  answer["device_margin_bytes"] = cuda ? json::value(cuda->libraries) : nullptr;
  answer["device_context_bytes"] = cuda ? json::value(cuda->context) : nullptr;
  answer["device_total_bytes"] = bytes + (cuda ? cuda->sum() : 0);
}

json::object phases_of(const MemoryNeed& need) {
  json::object phases;
  for (const auto& [name, memory] : columns_of(need))
    phases[name] = json::object{{"peak_bytes", memory->peak_bytes}, {"by_kind", by_kind(*memory)}};
  return phases;
}

void print_phases(const MemoryNeed& need) {
  const auto columns = columns_of(need);
  std::printf("%-18s", "bytes by kind");
  for (const auto& [name, memory] : columns) std::printf("%12s", name);
  std::printf("\n");
  const auto line = [&](const char* name, const auto& bytes_of) {
    std::printf("  %-16s", name);
    for (const auto& [phase, memory] : columns)
      std::printf("%12s", units::bytes(bytes_of(*memory)).c_str());
    std::printf("\n");
  };
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    const auto of_kind = [kind](const PhaseMemory& memory) { return memory.by_kind[kind]; };
    bool any = false;
    for (const auto& [name, memory] : columns) any = any || of_kind(*memory) > 0;
    if (any) line(name_of(static_cast<MemoryKind>(kind)), of_kind);
  }
  line("at once", [](const PhaseMemory& memory) { return memory.peak_bytes; });
  std::printf(
      "  (at once: the most at any one moment; each kind is highest at a moment of its own)\n");
}

int plan_ranks(const RankPlan& asked, const HybridTrainerConfig& config, Device device,
               const std::optional<std::size_t>& budget) {
  const std::optional<MemorySize> rate = link_rate(asked.link);
  const MemoryNeed need = simulate_ranks(config, device, asked.ranks);
  std::optional<RankStepTime> time;
  if (rate) {
    const StepRates rates = measure_step_rates(config, Stream(make_device_pool(device)));
    time = estimate_rank_step(config, device, asked.ranks, need.transfer, rates,
                              static_cast<double>(rate->bytes));
  }
  const bool fits = !budget || need.device_bytes <= *budget;
  if (asked.json) {
    json::object answer{{"fits", fits},
                        {"devices", asked.ranks},
                        {"zero", config.distributed.zero},
                        {"phases", phases_of(need)},
                        {"host_peak_bytes", need.host_bytes},
                        {"sent_bytes_per_step", need.transfer.bytes_sent},
                        {"link_bytes_per_step", need.transfer.link_bytes},
                        {"missing_bytes", fits ? 0 : need.device_bytes - *budget}};
    add_device_memory(answer, need.device_bytes, asked.cuda);
    add_times(answer, time);
    std::cout << json_line(answer) << "\n";
  } else {
    const int zero = static_cast<int>(config.distributed.zero);
    std::printf("%d devices%s: `hybrid %s --ranks %d --set distributed.zero=%d`\n", asked.ranks,
                zero > 0 ? concat(", ZeRO ", zero).c_str() : "", asked.command.c_str(), asked.ranks,
                zero);
    if (!fits) std::printf("does not fit\n");
    print_device_memory("a rank takes", need.device_bytes, budget, asked.cuda);
    const std::size_t here = device.type == DeviceType::kCpu ? machine_memory().available_bytes : 0;
    if (here > 0) {
      const auto together =
          static_cast<std::size_t>(asked.ranks) * (need.device_bytes + need.host_bytes);
      std::printf("on one machine    they take %s together%s %s that this one has available\n",
                  units::bytes(together).c_str(), together <= here ? ", of" : ", more than the",
                  units::bytes(here).c_str());
    }
    std::printf("and sends         %s in a Full step\n",
                units::bytes(need.transfer.bytes_sent).c_str());
    if (time) print_times(*time, *rate);
    print_phases(need);
  }
  return static_cast<int>(fits ? ExitCode::kSuccess : ExitCode::kMemory);
}

}  // namespace hybrid_trainer
