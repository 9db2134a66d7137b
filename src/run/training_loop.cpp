#include "src/run/training_loop.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "src/files/checkpoint.h"

namespace hybrid_trainer {

namespace {

/// Returns whether a multiple of `every` is above `before` and at most `count`.
bool reaches_multiple(std::int64_t before, std::int64_t count, std::int64_t every) {
  return every > 0 && count / every > before / every;
}

/// Minimum steps of an epoch: with shorter epochs, not every epoch gets a checkpoint.
constexpr std::int64_t kMinEpochSteps = 10;

CheckpointConfig with_fewer_epochs(CheckpointConfig config, const ShuffledBatches& batches) {
  if (config.every_epochs > 0)
    config.every_epochs = std::max(config.every_epochs, batches.epochs_in(kMinEpochSteps));
  return config;
}

}  // namespace

CheckpointSchedule::CheckpointSchedule(const HybridTrainerConfig& config,
                                       const ShuffledBatches& batches)
    : config_(with_fewer_epochs(config.checkpoint, batches)),
      counts_minutes_(config.saves_by_time()),
      batches_(batches) {}

bool CheckpointSchedule::is_due_by_time() const {
  return counts_minutes_ && seconds_since(saved_at_) >= 60 * config_.every_minutes;
}

bool CheckpointSchedule::is_due_by_steps(std::int64_t step, std::int64_t last) const {
  return reaches_multiple(last, step, config_.every_steps) ||
         reaches_multiple(batches_.epochs_in(last), batches_.epochs_in(step), config_.every_epochs);
}

RunSaving::RunSaving(std::string folder, const TrainingRunSettings& settings)
    : folder_(std::move(folder)),
      resume_hint_(settings.resume_command.empty() ? "--resume continues from there"
                                                   : "continue with: " + settings.resume_command),
      restart_hint_(settings.restart_command.empty()
                        ? "--resume starts from the beginning"
                        : "start again with: " + settings.restart_command) {}

std::string RunSaving::stopped_text(std::int64_t steps_done, std::int64_t steps) const {
  if (steps_done > 0)
    return concat("stopped after step ", steps_done, " of ", steps, " and saved; ", resume_hint_);
  return concat("stopped before the first step: nothing was trained; ", restart_hint_);
}

bool RunSaving::save(HybridTrainer& trainer, RunRecords& records, CheckpointUse use) {
  const bool failed_before = !problem_.empty();
  records.sync();
  trainer.drain();  // if this fails, ranks could not agree to continue
  try {
    trainer.save(folder_, use);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kIo && error.code() != ExitCode::kMemory) throw;
    problem_ = error.what();
    if (!failed_before) {
      records.report(concat("no checkpoint at step ", trainer.steps_done(), ": ", problem_,
                            "; training continues, and each step retries"));
    }
    return false;
  }
  problem_.clear();
  if (failed_before)
    records.report(concat("saved a checkpoint at step ", trainer.steps_done(),
                          ", after earlier attempts failed"));
  return true;
}

void RunSaving::save_final(HybridTrainer& trainer, RunRecords& records) {
  if (save(trainer, records)) return;
  const FoundCheckpoint found = find_newest_checkpoint(folder_);
  const std::string rest = found.checkpoint ? concat("the newest good checkpoint is ",
                                                     found.checkpoint->path, "; ", resume_hint_)
                                            : concat("there is no checkpoint; ", restart_hint_);
  throw IoError(concat("the run stopped after step ", trainer.steps_done(),
                       ", which could not be saved: ", problem_, "; ", rest));
}

void RunSaving::save_and_report(HybridTrainer& trainer, RunRecords& records) {
  try {
    trainer.drain();
  } catch (const Diverged&) {  // the run ends with the first error
  }
  if (trainer.steps_done() > 0 && save(trainer, records))
    records.report(concat("saved after step ", trainer.steps_done(), "; ", resume_hint_));
}

TrainingLoop::TrainingLoop(const Run& run)
    : run_(run), schedule_(run.config, run.loader.source()), saved_at_(run.trainer.steps_done()) {}

TrainingLoop::Evaluated TrainingLoop::evaluate() {
  Evaluated found;
  run_.trainer.defer_publishing(false);  // else a pass of one rank alone would publish the weights
  const auto evaluate_weights = [&] {
    return run_.ranks.evaluate(run_.model, run_.evaluation, run_.config, run_.stream);
  };
  run_.trainer.with_exact([&] { found.of_weights = evaluate_weights(); });
  run_.trainer.with_average([&] { found.loss_of_average = evaluate_weights().loss; });
  run_.trainer.defer_publishing(true);
  return found;
}

void TrainingLoop::evaluate(StepRecord& record) {
  const Evaluated found = evaluate();
  record.validation_loss = found.of_weights.loss;
  record.average_validation_loss = found.loss_of_average;
  if (!found.of_weights.preference) return;
  record.validation_reward_margin = found.of_weights.preference->margin();
  record.validation_preference_accuracy = found.of_weights.preference->accuracy;
}

void TrainingLoop::evaluate_start() {
  const HybridTrainerConfig& config = run_.config;
  const bool is_fine_tuning =
      run_.settings.init_from && (config.data.is_rows() || !config.model.labels.empty());
  if (!is_fine_tuning || run_.trainer.steps_done() > 0) return;
  const double loss = evaluate().of_weights.loss;
  initial_validation_loss_ = loss;
  run_.records.report(concat("validation loss ", brief(loss), " before training"));
}

void TrainingLoop::add_overhead(StepRecord& record) {
  record.overhead_seconds = std::max(0.0, seconds_since(recorded_) - record.seconds);
  recorded_ = Clock::now();
}

/// Returns whether to evaluate now; in Predict, only after the decision on the prediction.
bool TrainingLoop::evaluates_after(std::int64_t step, std::int64_t undecided_before) {
  if (run_.trainer.machine().undecided_steps() > 0) return false;
  const std::int64_t every = run_.config.training.evaluate_every_steps;
  const bool due = every > 0 && step / every > (step - 1 - undecided_before) / every;
  TrainerProgress& progress = run_.trainer.progress();
  return progress.judge.evaluates(due || step == run_.config.training.steps,
                                  progress.has_delayed_updates(run_.config.phases));
}

Batch TrainingLoop::next_batch() {
  try {
    return run_.loader.next();
  } catch (const Error&) {
    if (!run_.ranks.are_several())  // other ranks do not get this error
      run_.saving.save_and_report(run_.trainer, run_.records);
    throw;
  }
}

StepRecord TrainingLoop::step() {
  const Batch batch = next_batch();
  run_.now = {run_.trainer.machine().phase(), run_.trainer.steps_done() + 1};
  run_.records.begin_step(*run_.now.phase, run_.now.step);
  const std::int64_t undecided_before = run_.trainer.machine().undecided_steps();
  try {
    run_.ranks.begin_step();
    StepRecord record = run_.trainer.step(batch);
    run_.ranks.end_step(run_.config, record);
    if (run_.trainer.progress().rollback_pending || !evaluates_after(record.step, undecided_before))
      return record;
    if (run_.trainer.progress().judge.is_on())
      run_.trainer.drain();  // judges the weights that a checkpoint would save
    if (!run_.trainer.progress().rollback_pending) evaluate(record);
    return record;
  } catch (const DivergedStep& error) {
    run_.records.write_failed(error.record);
    run_.saving.save_and_report(run_.trainer, run_.records);
    throw;
  } catch (const Diverged&) {  // from the validation loss
    run_.saving.save_and_report(run_.trainer, run_.records);
    throw;
  }
}

/// Restores the last checkpoint; the batches since then are repeated.
void TrainingLoop::roll_back(const StepRecord& failed) {
  try {
    run_.trainer.roll_back(run_.checkpoints, failed);
  } catch (const Diverged&) {
    run_.records.write_failed(failed);
    run_.saving.save_and_report(run_.trainer, run_.records);
    throw;
  }
  run_.loader.seek(run_.trainer.steps_done());
  run_.records.rewind_to(run_.trainer.steps_done());
  saved_at_ = run_.trainer.steps_done();
  schedule_.saved();
}

void TrainingLoop::compare_weights() {
  run_.trainer.with_exact(
      [&] { check_same_weights(run_.ranks, run_.trainer.steps_done(), run_.model, run_.stream); });
}

/// Drains the trainer. If this ends the run, saves first.
void TrainingLoop::drain() {
  try {
    run_.trainer.drain();
  } catch (const Diverged&) {
    run_.saving.save_and_report(run_.trainer, run_.records);
    throw;
  }
}

/// Exchanges votes. If messages between ranks are pending, sends this rank's vote with the next
/// message.
StepVote TrainingLoop::agree() {
  const StepVote here{run_.interruption.requested(), schedule_.is_due_by_time()};
  if (const auto late = run_.trainer.vote_to_stop(here.stops)) return {.stops = *late};
  return run_.ranks.agree(here);
}

/// Returns whether this step's checkpoint is one of the best.
bool TrainingLoop::judge(const StepRecord& record) {
  LossJudge& judge = run_.trainer.progress().judge;
  return record.validation_loss && judge.is_on() &&
         judge.judge(run_.trainer.steps_done(), *record.validation_loss);
}

/// Saves a checkpoint if it is due or among the best. If the run may roll back, saves only after
/// healthy steps.
void TrainingLoop::save_if_due(const StepRecord& record, bool by_steps, bool is_due) {
  const bool may_save = !run_.config.divergence.rolls_back() || run_.trainer.machine().is_healthy();
  const bool is_best = may_save && judge(record);
  const bool saves = may_save && (is_due || is_best);
  if (run_.config.distributed.compares_weights(record.step, saves)) compare_weights();
  const auto use = by_steps ? CheckpointUse::kResumeAndRollBack : CheckpointUse::kResume;
  if (!saves) return;
  if (!run_.saving.save(run_.trainer, run_.records, use)) {
    if (is_best) run_.trainer.progress().judge.forget(run_.trainer.steps_done());
    return;
  }
  schedule_.saved();
  saved_at_ = record.step;
}

RunEnd TrainingLoop::step_to_end(bool saves_first) {
  const std::int64_t steps = run_.config.training.steps;
  if (run_.ranks.lead())
    run_.interruption.finish_steps_first("ended immediately, without saving; " +
                                         run_.saving.resume_hint());
  RunSummary& summary = run_.records.summary();
  if (saved_at_ >= steps) {
    const Evaluated found = evaluate();
    summary.final_validation_loss = found.of_weights.loss;
    summary.final_average_validation_loss = found.loss_of_average;
  }
  evaluate_start();
  run_.trainer.defer_publishing(true);
  recorded_ = Clock::now();
  if (saves_first) run_.saving.save(run_.trainer, run_.records, CheckpointUse::kResumeAndRollBack);
  while (run_.trainer.steps_done() < steps &&
         !run_.trainer.progress().judge.is_patience_exhausted()) {
    const StepVote wish = agree();
    if (wish.stops) break;
    StepRecord record = step();
    record.initial_validation_loss = std::exchange(initial_validation_loss_, std::nullopt);
    add_overhead(record);
    const bool by_steps =
        schedule_.is_due_by_steps(record.step, run_.trainer.progress().last_return_point());
    const bool is_due = by_steps || wish.saves;
    if (is_due && !run_.trainer.progress().rollback_pending) drain();
    if (run_.trainer.progress().rollback_pending) {
      roll_back(record);
      continue;
    }
    run_.records.write(record);
    if (run_.settings.on_step) run_.settings.on_step(record);
    save_if_due(record, by_steps, is_due);
  }
  return end();
}

std::string TrainingLoop::patience_text() const {
  const TrainingConfig& training = run_.config.training;
  return concat("the run ends after step ", run_.trainer.steps_done(), " of ", training.steps,
                ": no evaluation lowered the validation loss",
                training.min_improvement > 0 ? concat(" by more than ", training.min_improvement)
                                             : std::string(),
                " since step ", run_.trainer.progress().judge.improved_at(), " (training.patience ",
                training.patience, ")");
}

RunEnd TrainingLoop::end() {
  const std::int64_t done = run_.trainer.steps_done(), steps = run_.config.training.steps;
  if (saved_at_ != done) {
    drain();
    if (run_.config.distributed.compares_weights(run_.trainer.steps_done(), true))
      compare_weights();
    run_.saving.save_final(run_.trainer, run_.records);
  }
  run_.trainer.defer_publishing(false);
  run_.ranks.wait_for_all();
  run_.records.summary().best = run_.trainer.progress().judge.lowest();
  if (run_.trainer.progress().judge.is_patience_exhausted() && run_.trainer.steps_done() < steps) {
    run_.records.summary().stopped_early = true;
    run_.records.report(patience_text());
    return RunEnd::kFinished;
  }
  if (run_.trainer.steps_done() == steps) return RunEnd::kFinished;
  run_.records.report(run_.saving.stopped_text(run_.trainer.steps_done(), steps));
  return RunEnd::kInterrupted;
}

}  // namespace hybrid_trainer
