#include <boost/json.hpp>
#include <iostream>

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/trainer/memory_plan.h"
#include "src/config/config_checks.h"
#include "src/core/cuda_runtime.h"
#include "src/core/machine.h"
#include "src/core/messages.h"
#include "src/files/config_fields.h"
#include "src/files/json.h"
#include "src/files/output_file.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/run/fine_tuning_method.h"
#include "src/tasks/task_kind.h"
#include "src/tools/commands.h"
#include "src/tools/config_arguments.h"
#include "src/tools/options.h"
#include "src/tools/plan/plan_output.h"
#include "src/tools/train/train_output.h"
#include "src/tools/train/typed_command.h"
#include "src/trainer/planning/device_memory.h"

namespace hybrid_trainer {

namespace {

namespace json = boost::json;

struct PlanRequest {
  ConfigArguments source;
  std::string model, method, device, apply;
  std::string device_budget, host_budget, link;
  std::int64_t tokens_per_step = 0;
  std::int64_t devices = 1;
  std::optional<int> zero;  // none: the configuration's value
  bool json = false;
};

std::optional<std::size_t> budget_of(const char* option, const std::string& text,
                                     std::optional<std::size_t> of_config) {
  if (text.empty()) return of_config;
  const auto size = MemorySize::parse(text);
  if (size && size->bytes > 0 && MemorySize::has_unit(text)) return size->bytes;
  throw UsageError(
      concat("plan: ", option, ": got ", text, ", want a size with its unit, for example 16GiB"));
}

void set_tokens_per_step(HybridTrainerConfig& config, std::int64_t tokens) {
  const std::int64_t unit =
      config.data.sequence_length * config.gradient_accumulation.micro_batches;
  if (tokens < 1 || tokens % unit != 0) {
    throw UsageError(concat("plan: --tokens-per-step ", tokens, ": want a multiple of ", unit,
                            " (one sequence in each micro-batch)"));
  }
  config.data.batch_size = tokens / unit;
}

constexpr std::int64_t kMaxRanks = 64;  // limited because each rank is simulated

/// Returns whether only `hybrid finetune` can train the model, because it reads more than text.
bool only_supports_fine_tuning(const ModelFolder& folder) {
  const ModelConfig model = read_hugging_face_model_config(folder, 0);
  return find_family(model.family).purpose.task.empty() || model.encoder.layers > 0;
}

bool is_fine_tuning(const PlanRequest& requested) {
  return !requested.method.empty() && !requested.model.empty();
}

HybridTrainerConfig config_of(PlanRequest& requested) {
  if (!requested.source.names_a_source() && requested.model.empty())
    throw UsageError("plan: give --preset NAME, --config FILE or --model HF_DIR");
  const ModelFolder folder(requested.model);
  if (requested.method.empty() && !requested.model.empty() && only_supports_fine_tuning(folder))
    requested.method = "full";
  HybridTrainerConfig config =
      is_fine_tuning(requested)
          ? build_config(requested.source, fine_tuning_config(folder, requested.method))
          : build_config(requested.source, {},
                         [&](HybridTrainerConfig& built) { set_method(built, requested.method); });
  if (is_fine_tuning(requested)) check_method(requested.method, config, folder);
  if (!requested.model.empty())
    config.model = with_training_of(read_hugging_face_model_config(folder, 0), config.model,
                                    explicit_keys(requested.source));
  set_vocabulary("plan", requested.source, config);
  if (requested.tokens_per_step != 0) set_tokens_per_step(config, requested.tokens_per_step);
  if (!requested.device.empty()) config.device = checked_device_name(requested.device);
  config.validate();
  if (config.lora.is_on() && config.lora.base == kFileBase) {
    if (!folder.is_gguf())
      throw UsageError(concat("plan: lora.base: got file, which requires a GGUF file; ",
                              "want a GGUF file as --model"));
    config.lora.file = requested.model;
  }
  return config;
}

/// The device to plan for. If it is not in this machine, the plan uses the given budget.
struct PlannedDevice {
  Device device;
  std::vector<std::string> notes;
  bool is_here = true;
};

PlannedDevice planned_device(const PlanRequest& requested, HybridTrainerConfig& config) {
  const bool is_cuda = config.device != "cpu" && config.device != "auto";
  if (!is_cuda || find_cuda().runtime != nullptr) return {find_device(config.device), {}};
  if (requested.device_budget.empty() && !config.device_budget()) {
    throw UsageError(concat("plan: --device ", config.device, ": this machine has no CUDA device (",
                            find_cuda().problem,
                            "); to plan for another machine, give the memory of its GPU with "
                            "--device-budget, for example 16GiB"));
  }
  MixedPrecisionConfig& precision = config.mixed_precision;
  for (std::string* const of_phase :
       {&precision.warmup, &precision.full, &precision.predict, &precision.correct})
    if (*of_phase == "auto") *of_phase = "bf16";
  return {{},
          {"this machine has no CUDA device: workspaces are computed for CPU kernels and differ by "
           "some MB on a GPU",
           "the settings were chosen with this machine's speeds, and the time per step on the "
           "other machine is unknown"},
          false};
}

/// Returns CUDA's share of device memory. A local device's free memory excludes CUDA's context.
std::optional<CudaShare> cuda_share(const PlanRequest& requested, const PlannedDevice& planned) {
  const bool is_cuda = planned.device.type == DeviceType::kCuda || !planned.is_here;
  if (!is_cuda) return {};
  return CudaShare{kDeviceMargin, requested.device_budget.empty() ? 0 : kDeviceContext};
}

/// Returns the budgets without CUDA's share. It is subtracted from --device-budget. A local CUDA
/// device without a budget gets its free memory as the budget.
MemoryBudgets budgets_of_run(const PlanRequest& requested, const PlannedDevice& planned,
                             MemoryBudgets budgets) {
  if (const auto cuda = cuda_share(requested, planned); cuda && !requested.device_budget.empty())
    budgets.device = std::max(*budgets.device, cuda->sum() + 1) - cuda->sum();
  if (planned.device.type == DeviceType::kCuda && !budgets.device)
    budgets.device = plannable_device_bytes(planned.device);
  return budgets;
}

/// Returns the plan's training command, with placeholders in capitals for unknown values.
std::string training_command(const PlanRequest& requested, const MemoryPlan& plan,
                             const MemoryBudgets& budgets) {
  std::vector<std::string> words;
  const auto add = [&](std::initializer_list<std::string> more) {
    words.insert(words.end(), more);
  };
  if (!requested.source.preset.empty()) add({"--preset", requested.source.preset});
  if (!requested.source.file.empty()) add({"--config", requested.source.file});
  const bool tunes = is_fine_tuning(requested);
  if (!requested.model.empty()) add({tunes ? "--model" : "--init-from", requested.model});
  if (!requested.method.empty()) add({"--method", requested.method});
  const std::string data = tunes ? "EXAMPLES" : find_family(plan.config.model.family).data;
  if (!data.empty()) add({"--data", data});
  if (data == "TABLE" && plan.config.data.columns.empty())
    add({"--columns", "COLUMN,...,target=COLUMN"});
  add({"--run", "RUN"});
  if (!requested.device.empty()) add({"--device", requested.device});
  const auto is_planned = [&](std::string_view key) {
    return std::ranges::any_of(plan.options,
                               [&](const PlannedOption& option) { return option.key == key; });
  };
  for (const std::string& setting : requested.source.settings) {
    const bool from_model = !requested.model.empty() && is_folder_setting(setting);
    if (!from_model && !is_planned(std::string_view(setting).substr(0, setting.find('='))))
      add({"--set", setting});
  }
  if (requested.tokens_per_step != 0 && !is_planned("data.batch_size"))
    add({"--set", concat("data.batch_size=", plan.config.data.batch_size)});
  for (const PlannedOption& option : plan.options)
    add({"--set", concat(option.key, "=", option.value)});
  if (budgets.device && !requested.device_budget.empty())
    add({"--set", "memory.device_budget=" + MemorySize{*budgets.device}.text()});
  if (budgets.host && !requested.host_budget.empty())
    add({"--set", "memory.host_budget=" + requested.host_budget});
  if (!requested.source.device_memory.empty())
    add({"--max-device-memory", requested.source.device_memory});
  return as_typed(tunes ? "finetune" : "train", words);
}

int plan_over_ranks(const PlanRequest& requested, HybridTrainerConfig config,
                    const PlannedDevice& planned, const std::optional<std::size_t>& budget) {
  if (!requested.apply.empty())
    throw UsageError(
        "plan: --apply cannot be combined with --devices; it writes a configuration for one "
        "device");
  const int ranks = static_cast<int>(requested.devices);
  if (is_fine_tuning(requested)) divide_batch(requested.source, ranks, config);
  check_micro_batches(config, ranks);
  config.distributed.zero = requested.zero.value_or(static_cast<int>(config.distributed.zero));
  if (config.distributed.zero < 0 || config.distributed.zero > 3)
    throw UsageError("plan: want --zero 0 to 3");
  return plan_ranks({.ranks = ranks,
                     .link = requested.link,
                     .command = requested.model.empty() ? "train" : "finetune",
                     .json = requested.json,
                     .cuda = cuda_share(requested, planned)},
                    config, planned.device, budget);
}

HybridTrainerConfig with_budgets(HybridTrainerConfig config, const MemoryBudgets& budgets) {
  config.memory.device_budget.bytes = budgets.device.value_or(0);
  config.memory.host_budget.bytes = budgets.host.value_or(0);
  return config;
}

int plan_one_device(const PlanRequest& requested, const HybridTrainerConfig& config,
                    const PlannedDevice& planned, MemoryBudgets budgets) {
  const Device device = planned.device;
  const bool has_budget = !requested.device_budget.empty() || config.device_budget();
  if (config.phases.traits().runs_ahead_of_ranks) check_ranks(config, 1);
  const StepRates rates = measure_step_rates(config, Stream(make_device_pool(device)));
  if (planned.is_here) budgets.both = memory_of_both(with_budgets(config, budgets), device);
  PlanAnswer answer{plan_memory(config, device, budgets, rates), budgets, {}, planned.notes, {}};
  answer.cuda = cuda_share(requested, planned);
  answer.is_here = planned.is_here;
  if (has_budget)
    if (const std::string warning = margin_warning(budgets.device, device); !warning.empty())
      answer.notes.push_back(warning);
  const MemoryPlan& plan = answer.plan;
  if (task_kind(config.model).has_parts) answer.parts = simulate_part_memory(plan.config, device);
  answer.command = training_command(requested, plan, budgets);
  if (const std::string why = why_no_predict_column(answer, device); !why.empty())
    answer.notes.push_back(why);
  if (!plan.fits && config.memory.folder.empty())
    answer.notes.emplace_back(
        "--set memory.folder=FOLDER allows the plan to use files in this folder, too");
  if (!plan.fits && supports_segments(config))
    answer.notes.emplace_back(
        "--set memory.segment_length=N processes sequences in segments of N tokens and needs less "
        "memory for activations; plans do not choose it");
  if (requested.json) {
    std::cout << as_json(answer) << "\n";
  } else {
    print(answer);
  }
  if (!has_budget) budgets.device = {};
  if (!requested.apply.empty() && plan.fits)
    replace_file(requested.apply, config_json(with_budgets(plan.config, budgets)));
  return static_cast<int>(plan.fits ? ExitCode::kSuccess : ExitCode::kMemory);
}

}  // namespace

int plan_command(const std::vector<std::string>& arguments) {
  PlanRequest requested;
  CommandSyntax syntax{
      .name = "plan",
      .usage = "(--preset NAME | --config FILE | --model HF_DIR) [--device-budget 16GiB] [options]",
      .description =
          "Computes the memory of a run in each phase before it runs, without allocating it,\n"
          "and finds options that make the run fit. Exit code 71 if nothing fits."};
  add_config_options(syntax.options, requested.source);
  auto add = syntax.options.add_options();
  add("model", model_value(requested.model),
      "Model to plan: a Hugging Face folder, a GGUF file or ollama:NAME.");
  add("method", po::value(&requested.method)->value_name("full|lora|dora|qlora"),
      "With --model: plan `hybrid finetune` with this method; without it, plan `hybrid train`.");
  add_device_option(syntax.options, requested.device);
  add("device-budget", po::value(&requested.device_budget)->value_name("SIZE"),
      "Available device memory, for example 16GiB; for a GPU, includes CUDA's own use of about 1.6 "
      "GB.");
  add("host-budget", po::value(&requested.host_budget)->value_name("SIZE"),
      "Host memory for data moved off the device (memory.host_budget).");
  add("tokens-per-step", po::value(&requested.tokens_per_step)->value_name("N"),
      "Tokens per step; sets data.batch_size.");
  add("apply", po::value(&requested.apply)->value_name("FILE"),
      "Write the configuration with the chosen options to FILE.");
  add("devices", po::value(&requested.devices)->value_name("N"), "Number of ranks to plan for.");
  add("link", po::value(&requested.link)->value_name("SIZE"),
      "With --devices: bandwidth of the link between ranks in bytes per second, as measured by "
      "`hybrid doctor --ranks`.");
  add("zero", optional_value(requested.zero, "Z"),
      "With --devices: ZeRO stage, 0 to 3 (distributed.zero).");
  add("json", po::bool_switch(&requested.json), "Print the result as one JSON object.");
  if (!parse_command_line(syntax, arguments)) return 0;

  HybridTrainerConfig config = config_of(requested);
  const MemoryBudgets given{
      .device = budget_of("--device-budget", requested.device_budget, config.device_budget()),
      .host = budget_of("--host-budget", requested.host_budget, config.memory.host_budget.limit()),
      .disk = free_disk_space(config)};
  const PlannedDevice planned = planned_device(requested, config);
  const MemoryBudgets budgets = budgets_of_run(requested, planned, given);
  set_threads(config.training.threads);
  if (requested.devices < 1 || requested.devices > kMaxRanks)
    throw UsageError(concat("plan: --devices ", requested.devices, ": want 1 to ", kMaxRanks));
  if (requested.devices == 1 && (requested.zero || !requested.link.empty()))
    throw UsageError("plan: --zero and --link require --devices N");
  if (requested.devices > 1)
    return plan_over_ranks(requested, std::move(config), planned, budgets.device);
  return plan_one_device(requested, config, planned, budgets);
}

}  // namespace hybrid_trainer
