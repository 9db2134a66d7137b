#include "src/run/resumed_settings.h"

#include "hybrid_trainer/run_folder/run_files.h"
#include "src/run/run_memory.h"

namespace hybrid_trainer {

TrainingRunSettings with_base(TrainingRunSettings settings) {
  const RunPaths paths{settings.run.string()};
  if (!settings.resume || !paths.hold_a_run()) return settings;
  if (has_checkpoint(paths)) {
    if (!settings.config.freezes()) settings.init_from.reset();
    settings.adapter.reset();  // its values are in the checkpoint
    return settings;
  }
  const RunData data = data_of_run(paths);
  if (!settings.init_from && !data.base.empty()) settings.init_from = data.base;
  if (!settings.adapter && !data.adapter.empty()) settings.adapter = data.adapter;
  return settings;
}

}  // namespace hybrid_trainer
