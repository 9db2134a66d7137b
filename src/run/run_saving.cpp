#include "src/run/run_saving.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/io/checkpoint.h"

namespace hybrid_trainer {

RunSaving::RunSaving(std::string folder, const TrainingRunSettings& settings)
    : folder_(std::move(folder)),
      way_on_(settings.resume_command.empty() ? "--resume goes on from there"
                                              : "go on with: " + settings.resume_command),
      way_to_start_(settings.restart_command.empty()
                        ? "--resume starts again"
                        : "start again with: " + settings.restart_command) {}

std::string RunSaving::stopped_text(std::int64_t steps_done, std::int64_t steps) const {
  if (steps_done > 0)
    return concat("stopped after step ", steps_done, " of ", steps, ", which is saved; ", way_on_);
  return concat("stopped before the first step: nothing was trained; ", way_to_start_);
}

bool RunSaving::save(HybridTrainer& trainer, RunRecords& records, CheckpointUse use) {
  const bool failed_before = !problem_.empty();
  records.sync();
  trainer.settle();  // where it fails, ranks would not agree on going on
  try {
    trainer.save(folder_, use);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kIo && error.code() != ExitCode::kMemory) throw;
    problem_ = error.what();
    if (!failed_before) {
      records.tell(concat("no checkpoint at step ", trainer.steps_done(), ": ", problem_,
                          "; training goes on, and each step tries again"));
    }
    return false;
  }
  problem_.clear();
  if (failed_before) records.tell(concat("saved at step ", trainer.steps_done(), " after all"));
  return true;
}

void RunSaving::save_at_the_end(HybridTrainer& trainer, RunRecords& records) {
  if (save(trainer, records)) return;
  const FoundCheckpoint found = find_newest_checkpoint(folder_);
  const std::string rest = found.checkpoint ? concat("the newest good checkpoint is ",
                                                     found.checkpoint->path, "; ", way_on_)
                                            : concat("there is no checkpoint; ", way_to_start_);
  throw IoError(concat("the run stopped after step ", trainer.steps_done(),
                       ", which is not saved: ", problem_, "; ", rest));
}

void RunSaving::save_and_tell(HybridTrainer& trainer, RunRecords& records) {
  try {
    trainer.settle();
  } catch (const Diverged&) {  // the run ends by the first
  }
  if (trainer.steps_done() > 0 && save(trainer, records))
    records.tell(concat("saved after step ", trainer.steps_done(), "; ", way_on_));
}

}  // namespace hybrid_trainer
