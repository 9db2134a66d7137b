#include "src/tools/plan/plan_output.h"

#include <boost/json.hpp>
#include <cstdio>
#include <iostream>

#include "hybrid_trainer/core/memory_pool.h"
#include "src/config/placement.h"
#include "src/core/machine.h"
#include "src/core/messages.h"
#include "src/files/json.h"
#include "src/tasks/task_kind.h"
#include "src/trainer/planning/step_cost.h"

namespace hybrid_trainer {

namespace {

namespace json = boost::json;

json::object by_kind(const PhaseMemory& memory) {
  json::object kinds;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
    kinds[name_of(static_cast<MemoryKind>(kind))] = memory.by_kind[kind];
  return kinds;
}

std::vector<std::pair<const char*, const PhaseMemory*>> columns_of(const MemoryNeed& need) {
  std::vector<std::pair<const char*, const PhaseMemory*>> columns;
  if (need.reference.peak_bytes > 0) columns.emplace_back("reference", &need.reference);
  for (const Phase phase : kAllPhases)
    if (need.phase(phase).peak_bytes > 0) columns.emplace_back(name_of(phase), &need.phase(phase));
  return columns;
}

std::optional<MemorySize> link_rate(const std::string& link) {
  if (link.empty()) return {};
  const std::optional<MemorySize> rate = MemorySize::parse(link);
  if (rate && rate->bytes > 0) return rate;
  throw UsageError(concat("plan: --link: got ", link, ", want bytes per second, such as 125MB"));
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
      "                  communication (%s s on a link of %s per second, partly overlapped)\n",
      brief(time.seconds()).c_str(), brief(time.computing).c_str(), brief(time.exposed).c_str(),
      brief(time.sending).c_str(), rate.text().c_str());
}

/// Returns the number that the text spells, such as 0.5, or the text itself.
json::value value_of(const std::string& text) {
  boost::system::error_code problem;
  json::value value = json::parse(text, problem);
  return problem ? json::value(text) : value;
}

void print_budget(const char* name, std::size_t bytes, const std::optional<std::size_t>& budget,
                  const char* whose) {
  const std::string of = budget ? concat(" of ", units::bytes(*budget), whose) : "";
  std::printf("%-18s%s%s\n", name, units::bytes(bytes).c_str(), of.c_str());
}

std::size_t bytes_of(const Placement& placement, const MemoryNeed& need) {
  std::size_t bytes = 0;
  for (const MemoryKind kind : placement.kinds)
    bytes += need.by_kind(placement.place)[static_cast<std::size_t>(kind)];
  return bytes;
}

json::array placements_of(const MemoryPlan& plan) {
  json::array all;
  for (const Placement& one : placements(plan.config)) {
    all.push_back(json::object{{"what", one.what},
                               {"place", one.place},
                               {"bits", one.bits},
                               {"bytes", bytes_of(one, plan.need)}});
  }
  return all;
}

void print_placements(const MemoryPlan& plan) {
  std::printf("%-18s%12s%12s%12s\n", "while not in use", "location", "bits", "bytes");
  for (const Placement& one : placements(plan.config)) {
    std::printf("  %-16s%12s%12s%12s\n", one.what.c_str(),
                one.place == "file" ? "a file" : one.place.c_str(),
                one.bits == 0 ? "as in file" : std::to_string(one.bits).c_str(),
                units::bytes(bytes_of(one, plan.need)).c_str());
  }
}

/// Columns of the table of parts. Each is the sum of some kinds of memory.
const std::vector<std::pair<const char*, std::vector<MemoryKind>>>& part_columns() {
  static const std::vector<std::pair<const char*, std::vector<MemoryKind>>> columns{
      {"weights", {MemoryKind::kParameters, MemoryKind::kMasterWeights}},
      {"gradients", {MemoryKind::kGradients}},
      {"optimizer", {MemoryKind::kOptimizerState}},
      {"activations", {MemoryKind::kActivations, MemoryKind::kLogits, MemoryKind::kWorkspace}}};
  return columns;
}

std::size_t bytes_of(const PartMemory& part, const std::vector<MemoryKind>& kinds) {
  std::size_t bytes = 0;
  for (const MemoryKind kind : kinds) bytes += part.of(kind);
  return bytes;
}

void print_parts(const std::vector<PartMemory>& parts) {
  if (parts.empty()) return;
  std::printf("%-18s", "device memory of");
  for (const auto& [name, kinds] : part_columns()) std::printf("%12s", name);
  std::printf("\n");
  for (const PartMemory& part : parts) {
    std::printf("  %-16s", part.part.empty() ? "no part" : part.part.c_str());
    for (const auto& [name, kinds] : part_columns()) {
      const std::size_t bytes = bytes_of(part, kinds);  // frozen parts have only weights
      std::printf("%12s", bytes == 0 ? "-" : units::bytes(bytes).c_str());
    }
    std::printf("\n");
  }
}

json::object parts_of(const std::vector<PartMemory>& parts) {
  json::object all;
  for (const PartMemory& part : parts) {
    json::object& columns = all[part.part].emplace_object();
    for (const auto& [name, kinds] : part_columns())
      columns[concat(name, "_bytes")] = bytes_of(part, kinds);
  }
  return all;
}

std::string seconds_text(double seconds) {
  return seconds < 10 ? units::fixed(seconds, 2) + " s" : units::duration(seconds);
}

/// Returns "2 micro-batches of 4 x 512 tokens".
std::string step_text(const HybridTrainerConfig& config) {
  const std::int64_t parts = config.gradient_accumulation.micro_batches;
  const TaskKind& kind = task_kind(config.model);
  const std::string length =
      kind.in_sequences ? concat(" x ", config.data.sequence_length) : std::string();
  const std::string size = concat(config.data.batch_size, length, " ", kind.unit);
  return parts == 1 ? size : concat(parts, " micro-batches of ", size);
}

/// Prints the device memory of the run. On CUDA, adds CUDA's share and also prints both parts.
void print_device_memory(const char* name, std::size_t bytes,
                         const std::optional<std::size_t>& budget,
                         const std::optional<CudaShare>& cuda) {
  const std::size_t beside = cuda ? cuda->sum() : 0;
  print_budget(name, bytes + beside, budget ? std::optional(*budget + beside) : std::nullopt, "");
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
  line("peak", [](const PhaseMemory& memory) { return memory.peak_bytes; });
  std::printf(
      " (peak: the highest sum at any moment; kinds may have their maxima at different moments)\n");
}

}  // namespace

int plan_ranks(const RankPlan& requested, const HybridTrainerConfig& config, Device device,
               const std::optional<std::size_t>& budget) {
  const std::optional<MemorySize> rate = link_rate(requested.link);
  const MemoryNeed need = simulate_ranks(config, device, requested.ranks);
  std::optional<RankStepTime> time;
  if (rate) {
    const StepRates rates = measure_step_rates(config, Stream(make_device_pool(device)));
    time = estimate_rank_step(config, device, requested.ranks, need.transfer, rates,
                              static_cast<double>(rate->bytes));
  }
  const bool fits = !budget || need.device_bytes <= *budget;
  if (requested.json) {
    json::object answer{{"fits", fits},
                        {"devices", requested.ranks},
                        {"zero", config.distributed.zero},
                        {"phases", phases_of(need)},
                        {"host_peak_bytes", need.host_bytes},
                        {"sent_bytes_per_step", need.transfer.bytes_sent},
                        {"link_bytes_per_step", need.transfer.link_bytes},
                        {"missing_bytes", fits ? 0 : need.device_bytes - *budget}};
    add_device_memory(answer, need.device_bytes, requested.cuda);
    add_times(answer, time);
    std::cout << json_line(answer) << "\n";
  } else {
    const int zero = static_cast<int>(config.distributed.zero);
    std::printf("%d devices%s: `hybrid %s --ranks %d --set distributed.zero=%d`\n", requested.ranks,
                zero > 0 ? concat(", ZeRO ", zero).c_str() : "", requested.command.c_str(),
                requested.ranks, zero);
    if (!fits) std::printf("does not fit\n");
    print_device_memory("a rank takes", need.device_bytes, budget, requested.cuda);
    const std::size_t here = device.type == DeviceType::kCpu ? machine_memory().available_bytes : 0;
    if (here > 0) {
      const auto together =
          static_cast<std::size_t>(requested.ranks) * (need.device_bytes + need.host_bytes);
      std::printf("on one machine    all ranks take %s%s the %s that this machine has available\n",
                  units::bytes(together).c_str(), together <= here ? " of" : ", more than",
                  units::bytes(here).c_str());
    }
    std::printf("and sends         %s per Full step\n",
                units::bytes(need.transfer.bytes_sent).c_str());
    if (time) print_times(*time, *rate);
    print_phases(need);
  }
  return static_cast<int>(fits ? ExitCode::kSuccess : ExitCode::kMemory);
}

std::string as_json(const PlanAnswer& answer) {
  const MemoryPlan& plan = answer.plan;
  json::object options;
  for (const PlannedOption& option : plan.options) options[option.key] = value_of(option.value);
  const auto& machine = answer.budgets.both;
  json::object found{
      {"fits", plan.fits},
      {"host_peak_bytes", plan.need.host_bytes},
      {"disk_peak_bytes", plan.need.disk_bytes},
      {"machine_available_bytes", machine ? json::value(*machine) : nullptr},
      {"phases", phases_of(plan.need)},
      {"placements", placements_of(plan)},
      {"options", options},
      {"step_seconds", answer.is_here ? json::value(plan.step_seconds) : nullptr},
      {"expected_slowdown", answer.is_here ? json::value(plan.expected_slowdown) : nullptr},
      {"missing_bytes", plan.missing_bytes},
      {"largest_batch", plan.largest_batch},
      {"command", plan.fits ? json::value(answer.command) : nullptr},
      {"notes", json::value_from(answer.notes)}};
  add_device_memory(found, plan.need.device_bytes, answer.cuda);
  if (!answer.parts.empty()) found["parts"] = parts_of(answer.parts);
  return json_line(found);
}

void print(const PlanAnswer& answer) {
  const MemoryPlan& plan = answer.plan;
  const MemoryBudgets& budgets = answer.budgets;
  std::printf("%s\n", !plan.fits             ? "does not fit with any combination of options"
                      : plan.options.empty() ? "fits without changes"
                                             : "fits with these options:");
  for (const PlannedOption& option : plan.options)
    std::printf("  --set %s=%s\n", option.key.c_str(), option.value.c_str());
  std::printf("a step has        %s\n", step_text(plan.config).c_str());
  print_device_memory("device memory", plan.need.device_bytes, budgets.device, answer.cuda);
  if (plan.need.host_bytes > 0 || budgets.host)
    print_budget("host memory", plan.need.host_bytes, budgets.host, "");
  if (budgets.both)
    print_budget("both together", plan.need.device_bytes + plan.need.host_bytes, budgets.both,
                 " that this machine has available");
  if (plan.need.disk_bytes > 0) print_budget("files", plan.need.disk_bytes, budgets.disk, "");
  if (!plan.fits) std::printf("missing           %s\n", units::bytes(plan.missing_bytes).c_str());
  print_phases(plan.need);
  print_placements(plan);
  print_parts(answer.parts);
  if (plan.fits) {
    if (answer.is_here)
      std::printf(
          "a step takes      about %s at this machine's present speed, %s times as long as with\n"
          "                  everything resident\n",
          seconds_text(plan.step_seconds).c_str(), units::fixed(plan.expected_slowdown, 2).c_str());
    if (plan.largest_batch > 0)
      std::printf("largest batch     %s\n", units::grouped(plan.largest_batch).c_str());
    std::printf("train with        %s\n", answer.command.c_str());
  }
  for (const std::string& note : answer.notes) std::printf("note: %s\n", note.c_str());
}

std::string why_no_predict_column(const PlanAnswer& answer, Device device) {
  const HybridTrainerConfig& config = answer.plan.config;
  const bool is_present = answer.plan.need.phase(Phase::kPredict).peak_bytes > 0;
  if (is_present || config.phases.max_predict_steps == 0) return "";
  HybridTrainerConfig unlimited = config;
  unlimited.memory.host_budget = {};
  const MemoryNeed need = simulate_memory(unlimited, device);
  if (need.phase(Phase::kPredict).peak_bytes == 0)
    return "the table has no columns predict and correct: the run is too short to reach these "
           "phases";
  return concat("the table has no columns predict and correct: predictions need ",
                units::bytes(need.host_bytes),
                " of host memory, which exceeds the host budget, so the run would not predict");
}

}  // namespace hybrid_trainer
