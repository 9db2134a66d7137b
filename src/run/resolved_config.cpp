#include "src/run/resolved_config.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/distributed/communicator.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/run/inert_keys.h"
#include "src/run/run_memory.h"

namespace hybrid_trainer {

HybridTrainerConfig resolved_config(const TrainingRunSettings& settings, Task& task,
                                    std::vector<std::string>& told) {
  told = settings.notes;
  HybridTrainerConfig config = task.completed(settings.config.with_parts());
  if (config.phases.delays_updates())
    check_threads("phases.asynchronous_optimizer.worker_threads",
                  config.phases.asynchronous_optimizer.worker_threads);
  const RankCount ranks{settings.ranks == nullptr ? 1 : settings.ranks->size(),
                        settings.local_ranks};
  const RunSurroundings run{find_device(config.device, settings.local_rank), ranks.all};
  for (std::string& text : inert_settings(config, settings.explicit_keys, run))
    told.push_back("warning: " + std::move(text));
  if (config.phases.max_predict_steps > 0 && config.phases.warmup_steps >= config.training.steps) {
    told.push_back(concat("all ", config.training.steps, " steps are Warmup, since ",
                          "phases.warmup_steps is ", config.phases.warmup_steps,
                          ": nothing will be predicted"));
  }
  const ModelRegistry* const families = task.simulated_by();
  if (families == nullptr) return config;
  const std::string warning =
      config.freezes()
          ? ""
          : untrained_router_warning(resolved_model_config(config.model, *families).experts);
  if (!warning.empty()) told.push_back("warning: " + warning);
  return with_memory(config, {settings.run.string()}, settings.resume, ranks, *families, told);
}

}  // namespace hybrid_trainer
