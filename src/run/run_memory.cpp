#include "src/run/run_memory.h"

#include <algorithm>

#include "hybrid_trainer/core/device.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/trainer/memory_plan.h"
#include "src/core/machine.h"
#include "src/core/messages.h"
#include "src/files/config_fields.h"
#include "src/files/output_file.h"
#include "src/observability/memory_reports.h"
#include "src/run/run_files.h"
#include "src/trainer/planning/device_memory.h"

namespace hybrid_trainer {

namespace {

std::size_t free_device_memory(Device device) {
  if (device.type == DeviceType::kCuda) return plannable_device_bytes(device);
  return machine_memory().available_bytes;
}

/// A memory need above a machine's memory. On a CPU, the system would kill the run silently.
struct Excess {
  MemoryNeed need;
  std::size_t share = 0;  // memory of the machine available to each of its ranks
  int ranks = 1;
  const char* how = "";   // " with predictions"
  std::string hint = "";  // suggestion
};

[[noreturn]] void throw_exceeds_machine(const Excess& excess) {
  const std::size_t host = excess.need.host_bytes, wanted = excess.need.device_bytes + host;
  const std::string host_note =
      host == 0 ? "" : concat(", including ", units::bytes(host), " for offloaded data");
  const bool several = excess.ranks > 1;
  throw OutOfMemory(
      concat("memory: ", several ? "each rank" : "the run", excess.how, " takes ",
             units::bytes(wanted), host_note, "; ", units::bytes(excess.share),
             several ? " per rank is available" : " is available", "\ntry ", excess.hint,
             "; `hybrid plan` finds settings that fit\nto skip this check, set both "
             "memory.device_budget and memory.host_budget"),
      wanted, excess.share);
}

[[noreturn]] void throw_does_not_fit(const MemoryNeed& need, const MemoryBudgets& budgets,
                                     const std::string& how) {
  const bool on_host = budgets.host && need.host_bytes > *budgets.host;
  const bool on_device = budgets.device && need.device_bytes > *budgets.device;
  const std::size_t wanted = on_device ? need.device_bytes : need.host_bytes;
  const std::size_t budget = on_device ? *budgets.device : on_host ? *budgets.host : 0;
  throw OutOfMemory(concat(on_device ? "device" : "host", " memory: the run takes ", wanted,
                           " bytes (", units::bytes(wanted), ") ", how, ", the budget is ", budget,
                           " (", units::bytes(budget),
                           "); `hybrid plan` with the same settings finds options that fit"),
                    wanted, budget);
}

/// Returns the budgets of the config or, if it has none, the machine's available memory.
MemoryBudgets budgets_of(const HybridTrainerConfig& config, Device device) {
  const bool shared = device.type == DeviceType::kCpu;  // both pools use system memory
  const bool divides = shared && config.memory.device_map == "auto";  // splits it between the pools
  const std::size_t free = shared || !config.device_budget() ? free_device_memory(device) : 0;
  const std::size_t on_device = config.device_budget().value_or(divides ? free / 4 * 3 : free);
  const std::size_t left = !shared   ? machine_memory().available_bytes
                           : divides ? std::max<std::size_t>(1, free - std::min(free, on_device))
                                     : free;
  return {.device = on_device,
          .host = config.memory.host_budget.limit().value_or(left),
          .disk = free_disk_space(config),
          .both = memory_of_both(config, device)};
}

/// Returns the config with the choices of memory.plan=auto or, without it, memory.device_map=auto.
HybridTrainerConfig with_chosen_memory(const HybridTrainerConfig& config,
                                       const ModelRegistry& registry,
                                       std::vector<std::string>& notes) {
  if (config.memory.plan != "auto" && config.memory.device_map != "auto") return config;
  const Device device = find_device(config.device);
  const MemoryBudgets budgets = budgets_of(config, device);
  if (config.memory.plan != "auto") {
    const HybridTrainerConfig mapped = with_device_map(config, device, budgets, registry);
    if (mapped.memory.device_map != config.memory.device_map)
      notes.push_back(concat("memory.device_map: ", mapped.memory.device_map));
    return mapped;
  }
  const StepRates rates = measure_step_rates(config, Stream(make_device_pool(device)), registry);
  const MemoryPlan plan = plan_memory(config, device, budgets, rates, registry);
  const char* const how = " with every option that saves memory";
  if (!plan.fits &&
      plan.need.device_bytes + plan.need.host_bytes > budgets.both.value_or(SIZE_MAX)) {
    throw_exceeds_machine({plan.need, *budgets.both, 1, how,
                           "files (--set memory.folder=FOLDER) or a smaller data.sequence_length"});
  }
  const bool has_margin = device.type == DeviceType::kCuda && !config.device_budget();
  const std::string margin_note =
      has_margin ? concat(", plus ", units::bytes(kDeviceMargin), " for CUDA's libraries") : "";
  if (!plan.fits) throw_does_not_fit(plan.need, budgets, how + 1 + margin_note);
  for (const PlannedOption& option : plan.options)
    notes.push_back(concat("planned: ", option.key, " ", option.value));
  return plan.config;
}

bool halve_micro_batches(HybridTrainerConfig& config) {
  if (config.training.cuda_graphs || config.data.batch_size % 2 != 0) return false;
  config.data.batch_size /= 2;
  config.gradient_accumulation.micro_batches *= 2;
  return true;
}

bool fits(const MemoryNeed& need, const MemoryBudgets& budgets) {
  return missing_bytes(need, budgets) == 0;
}

struct NeedInMicroBatches {
  MemoryNeed need;
  HybridTrainerConfig config;
};

/// Returns the need of the rank that uses most memory, for the largest micro-batches that fit and
/// do not exceed the given size. If no size fits, returns the smallest need. Stops halving the
/// micro-batches when this no longer reduces the need, because gradient sums grow while activations
/// are halved.
NeedInMicroBatches fitting_need(HybridTrainerConfig config, int ranks, SimulatedPhases phases,
                                const MemoryBudgets& budgets, const ModelRegistry& registry) {
  const auto simulate = [&] {
    return NeedInMicroBatches{
        simulate_ranks(config, find_device(config.device), ranks, phases, registry), config};
  };
  NeedInMicroBatches least = simulate();
  while (!fits(least.need, budgets) && halve_micro_batches(config)) {
    const auto less = [](std::size_t bytes) { return bytes - bytes / 1000; };
    NeedInMicroBatches next = simulate();
    if (next.need.device_bytes > less(least.need.device_bytes) &&
        next.need.host_bytes >= least.need.host_bytes && !fits(next.need, budgets))
      break;
    least = std::move(next);
  }
  return least;
}

/// Throws OutOfMemory if a rank exceeds its budgets with every micro-batch size.
NeedInMicroBatches need_in_budgets(const HybridTrainerConfig& config, int ranks,
                                   const ModelRegistry& registry) {
  const MemoryBudgets budgets{.device = config.device_budget(),
                              .host = config.memory.host_budget.limit()};
  HybridTrainerConfig unlimited = config;
  unlimited.memory.host_budget = {};
  NeedInMicroBatches taken =
      fitting_need(unlimited, ranks, SimulatedPhases::kUpdates, budgets, registry);
  if (!fits(taken.need, budgets)) {
    throw_does_not_fit(taken.need, budgets,
                       concat("in micro-batches of ", taken.config.data.batch_size, " examples"));
  }
  return taken;
}

/// Throws OutOfMemory if a run exceeds its budgets or, on a CPU, the memory of this machine.
void check_memory(const HybridTrainerConfig& config, const RankCount& ranks,
                  const ModelRegistry& registry) {
  const bool has_budget = config.device_budget() || config.memory.host_budget.limit();
  HybridTrainerConfig taken = config;
  if (has_budget) taken = need_in_budgets(config, ranks.all, registry).config;
  const Device device = find_device(config.device);
  const auto machine = memory_of_both(config, device);
  if (!machine) return;
  const std::size_t share = *machine / static_cast<std::size_t>(ranks.here);
  taken.memory.host_budget = {};
  const auto exceeds = [&](SimulatedPhases phases) {
    const MemoryNeed need = simulate_ranks(taken, device, ranks.all, phases, registry);
    return fits(need, {.both = share}) ? std::nullopt : std::optional(need);
  };
  const char* const plan =
      ranks.all > 1 || config.memory.plan == "auto" ? "" : " or --set memory.plan=auto";
  if (const auto need = exceeds(SimulatedPhases::kUpdates))
    throw_exceeds_machine(
        {*need, share, ranks.here, "", concat("a smaller data.batch_size", plan)});
  if (config.phases.max_predict_steps == 0 || has_budget) return;
  if (const auto need = exceeds(SimulatedPhases::kAll))
    throw_exceeds_machine({*need, share, ranks.here, " with predictions",
                           concat("--set phases.max_predict_steps=0", plan)});
}

}  // namespace

bool has_checkpoint(const RunPaths& paths) {
  return std::filesystem::exists(paths.checkpoints()) &&
         !std::filesystem::is_empty(paths.checkpoints());
}

HybridTrainerConfig with_memory_of(const HybridTrainerConfig& run, HybridTrainerConfig config) {
  const MemoryConfig asked = config.memory;
  config.memory = run.memory;
  config.memory.device_budget = asked.device_budget;
  config.memory.host_budget = asked.host_budget;
  config.memory.folder = asked.folder;
  config.memory.timeline = asked.timeline;
  config.data.batch_size = run.data.batch_size;
  config.gradient_accumulation = run.gradient_accumulation;
  config.optimizer.state_bits = run.optimizer.state_bits;
  config.phases.asynchronous_optimizer.exact_state = run.phases.asynchronous_optimizer.exact_state;
  return config;
}

HybridTrainerConfig with_memory(const HybridTrainerConfig& config, const RunPaths& paths,
                                bool resumes, const RankCount& ranks, const ModelRegistry& registry,
                                std::vector<std::string>& notes) {
  const bool was_planned = resumes && has_checkpoint(paths) && config.memory.plan == "auto";
  const HybridTrainerConfig taken = was_planned ? with_memory_of(config_of_run(paths), config)
                                                : with_chosen_memory(config, registry, notes);
  if (was_planned && config_json(taken) != config_json(config))
    notes.emplace_back(
        "the run keeps its memory plan from its first start; set memory.plan=off to change these "
        "settings");
  check_memory(taken, ranks, registry);
  return taken;
}

/// Returns why predictions do not fit in the budgets, or nullopt. At least one budget is set.
static std::optional<std::string> budget_problem(const MemoryBudgets& budgets,
                                                 const MemoryNeed& need) {
  if (fits(need, budgets)) return {};
  const bool on_device = need.device_bytes > budgets.device.value_or(SIZE_MAX);
  return concat("no predictions from now on: with them, the run would need more ",
                on_device ? "device" : "host", " memory than its budget: ",
                units::bytes(on_device ? need.device_bytes : need.host_bytes), " instead of ",
                units::bytes(on_device ? *budgets.device : *budgets.host), "; raise memory.",
                on_device ? "device" : "host", "_budget");
}

std::optional<std::string> why_no_predictions(const HybridTrainerConfig& config, int ranks,
                                              const ModelRegistry& registry) {
  const MemoryBudgets budgets{.device = config.device_budget(),
                              .host = config.memory.host_budget.limit()};
  if ((!budgets.host && !budgets.device) || config.phases.max_predict_steps == 0) return {};
  const Device device = find_device(config.device);
  HybridTrainerConfig smallest = config;
  smallest.memory.host_budget = {};
  smallest.predict_aware_memory.async_restore = false;  // staging falls back if memory is short
  if (ranks > 1) {
    const bool other_examples = config.phases.traits().runs_ahead_of_ranks &&
                                config.gradient_accumulation.micro_batches % ranks != 0;
    const MemoryNeed need =
        other_examples  // micro-batches that a rank running alone does not have
            ? simulate_ranks(smallest, device, ranks, SimulatedPhases::kAll, registry)
            : fitting_need(smallest, ranks, SimulatedPhases::kAll, budgets, registry).need;
    if (const auto why = budget_problem(budgets, need)) return why;
  }
  while (smallest.data.batch_size % 2 == 0) smallest.data.batch_size /= 2;
  return budget_problem(budgets,
                        simulate_memory(smallest, device, SimulatedPhases::kAll, registry));
}

void throw_with_snapshot(const OutOfMemory& error, const RunPaths& paths,
                         const RunPosition& moment) {
  std::string message = error.what();
  if (error.shortage()) {
    try {
      replace_file(paths.shortage(), to_json(*error.shortage(), moment.phase, moment.step));
      message +=
          concat("; `hybrid inspect ", shell_path(paths.shortage()), "` lists the memory in use");
    } catch (const IoError& problem) {
      message += concat("; cannot write the list of the memory in use: ", problem.what());
    }
  }
  throw OutOfMemory(message, error.requested_bytes(), error.available_bytes(), error.shortage());
}

}  // namespace hybrid_trainer
