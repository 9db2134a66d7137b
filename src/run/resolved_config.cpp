#include "src/run/resolved_config.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/distributed/communicator.h"
#include "hybrid_trainer/hugging_face/hugging_face.h"
#include "hybrid_trainer/optim/make_optimizer.h"
#include "hybrid_trainer/run/run_files.h"
#include "src/run/inert_keys.h"
#include "src/run/run_memory.h"
#include "src/trainer/run_model.h"

namespace hybrid_trainer {
namespace {

/// Throws ConfigError where the optimizer's groups or the adapters' targets do not fit the model,
/// which is made without memory.
void check_model(const HybridTrainerConfig& config, const ModelRegistry& registry) {
  const Stream nowhere(MemoryPool::create("device", {}, simulated_memory({})));
  const auto model = make_run_model(config, {}, nowhere, registry);
  make_optimizer(config.optimizer, trainable_parameters(*model), nowhere);
}

/// What export.dtype auto means: of a run that goes on what it meant when it began.
std::string dtype_of_export(const TrainingRunSettings& settings) {
  const RunPaths paths{settings.run.string()};
  if (settings.resume && paths.hold_a_run()) return config_of_run(paths).exported.dtype;
  const auto& base = settings.init_from;
  const bool is_short = base && dtype_of_hugging_face_weights(*base) == DType::kBF16;
  return is_short ? "bf16" : "fp32";
}

}  // namespace

HybridTrainerConfig resolved_config(const TrainingRunSettings& settings,
                                    const TrainingSource& source, std::vector<std::string>& told) {
  HybridTrainerConfig config = settings.config;
  told = settings.notes;
  if (settings.init_from)
    config.model = read_hugging_face_model_config(*settings.init_from, config.model.dropout,
                                                  *settings.registry);
  if (config.exported.dtype == "auto") config.exported.dtype = dtype_of_export(settings);
  const std::int64_t known = source.vocabulary_size().value_or(0);
  if (config.model.vocabulary == 0) config.model.vocabulary = known;
  if (config.model.vocabulary == 0) {
    throw ConfigError(
        {"model.vocabulary: the data folder does not say how many tokens there are; give --set "
         "model.vocabulary=N"});
  }
  if (config.model.vocabulary < known) {
    throw ConfigError({concat("model.vocabulary: got ", config.model.vocabulary,
                              ", the data's tokenizer has ", known)});
  }
  config.validate(*settings.registry);
  source.check(config);
  const int cores = processor_info().cores;
  if (config.phases.lacks_optimizer_state() && config.phases.worker_threads > cores) {
    throw ConfigError({concat("phases.worker_threads: got ", config.phases.worker_threads,
                              ", this process may use ", cores, " cores")});
  }
  if (!config.optimizer.groups.empty() || config.lora.is_on())
    check_model(config, *settings.registry);
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
  return with_memory(config, {settings.run.string()}, settings.resume, ranks, *settings.registry,
                     told);
}

}  // namespace hybrid_trainer
