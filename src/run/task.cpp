#include "hybrid_trainer/run/task.h"

#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/run_folder/run_files.h"

namespace hybrid_trainer {

void Task::write_files(const RunPaths& own, const RunPaths&, const HybridTrainerConfig& config,
                       bool) const {
  write_run_config(own, config);
}

std::vector<NamedText> Task::settings(const HybridTrainerConfig& config, LossModel& model) const {
  return {{"model", concat(units::grouped(model.parameter_count()), " parameters")},
          {"batch", concat(config.effective_batch(), " examples a step")}};
}

}  // namespace hybrid_trainer
