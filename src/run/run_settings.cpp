#include "src/run/run_settings.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/config/config_checks.h"
#include "src/config/stages.h"
#include "src/core/machine.h"
#include "src/distributed/communicator.h"
#include "src/optim/make_optimizer.h"
#include "src/run/run_files.h"
#include "src/run/run_memory.h"
#include "src/trainer/run_model.h"

namespace hybrid_trainer {

std::vector<std::string> inert_settings(const HybridTrainerConfig& config,
                                        const std::vector<std::string>& names,
                                        const RunContext& run) {
  if (names.empty()) return {};
  const bool is_cpu = run.device.type == DeviceType::kCpu;
  const std::map<std::string, std::string> known{{"ranks", std::to_string(run.ranks)},
                                                 {"device", is_cpu ? "cpu" : "cuda"}};
  struct Line {
    std::string why;
    std::vector<std::string> names;
  };
  std::vector<Line> lines;
  for (const std::string& name : names) {
    const std::string why = why_inert(name, config, known);
    if (why.empty()) continue;
    auto line = std::ranges::find(lines, why, &Line::why);
    if (line == lines.end()) line = lines.insert(line, Line{why, {}});
    if (std::ranges::count(line->names, name) == 0) line->names.push_back(name);
  }
  std::vector<std::string> notes;
  for (const Line& line : lines) {
    notes.push_back(concat(join(line.names),
                           line.names.size() == 1 ? " is set, but has" : " are set, but have",
                           " no effect here: ", line.why));
  }
  return notes;
}

bool resumes(const TrainingRunSettings& settings) {
  return settings.resume && RunPaths{settings.run.string()}.contains_run();
}

TrainingRunSettings with_base(TrainingRunSettings settings) {
  const RunPaths paths{settings.run.string()};
  if (!resumes(settings)) return settings;
  if (has_checkpoint(paths)) {
    if (!settings.config.freezes()) settings.init_from.reset();
    settings.adapter.reset();  // the checkpoint has its values
    return settings;
  }
  const RunData data = data_of_run(paths);
  if (!settings.init_from && !data.base.empty()) settings.init_from = data.base.path();
  if (!settings.adapter && !data.adapter.empty()) settings.adapter = data.adapter;
  return settings;
}

ShuffledBatches shuffled_batches(DatasetPart part, const HybridTrainerConfig& config) {
  return {std::move(part),
          {.batch_size = config.effective_batch(),
           .shuffle = config.data.shuffle,
           .seed = static_cast<std::uint64_t>(config.training.seed),
           .stages = Stages(config).batches(),
           .rows_continue = config.data.carry_state}};
}

std::optional<ModelFolder> opened_model(const TrainingRunSettings& settings,
                                        const ModelFolder& opened) {
  if (!settings.init_from || opened.path() != *settings.init_from) return settings.init_from;
  return opened;
}

void check_model(const HybridTrainerConfig& config, const ModelRegistry& registry) {
  const Stream nowhere(MemoryPool::create("device", {}, simulated_memory({})));
  const auto model = make_run_model(config, {}, nowhere, registry);
  make_optimizer(config.optimizer, trainable_parameters(*model), nowhere);
}

HybridTrainerConfig resolved_config(const TrainingRunSettings& settings, Task& task,
                                    std::vector<std::string>& notes) {
  notes = settings.notes;
  HybridTrainerConfig config = task.completed(settings.config.with_parts());
  const std::int64_t workers = config.phases.asynchronous_optimizer.worker_threads;
  if (config.phases.traits().delays_updates && workers > usable_threads())
    throw ConfigError({concat("phases.asynchronous_optimizer.worker_threads: got ", workers,
                              ", want 1 to ", usable_threads(), ", the threads of this process")});
  const RankCount ranks{settings.ranks == nullptr ? 1 : settings.ranks->size(),
                        settings.local_ranks};
  const RunContext run{find_device(config.device, settings.local_rank), ranks.all};
  for (std::string& text : inert_settings(config, settings.explicit_keys, run))
    notes.push_back("warning: " + std::move(text));
  if (config.phases.max_predict_steps > 0 && config.phases.warmup_steps >= config.training.steps) {
    notes.push_back(concat("all ", config.training.steps, " steps are Warmup, since ",
                           "phases.warmup_steps is ", config.phases.warmup_steps,
                           ", so there are no predictions"));
  }
  const ModelRegistry* const families = task.simulated_by();
  if (families == nullptr) return config;
  const std::string warning =
      config.freezes()
          ? ""
          : untrained_router_warning(resolved_model_config(config.model, *families).experts);
  if (!warning.empty()) notes.push_back("warning: " + warning);
  return with_memory(config, {settings.run.string()}, settings.resume, ranks, *families, notes);
}

}  // namespace hybrid_trainer
