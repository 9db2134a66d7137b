#include "hybrid_trainer/run/training_run.h"

#include <algorithm>
#include <ostream>

#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/hugging_face/adapter_files.h"
#include "hybrid_trainer/io/checkpoint.h"
#include "hybrid_trainer/io/json_fields.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/planning/memory_savings.h"
#include "hybrid_trainer/planning/memory_simulation.h"
#include "hybrid_trainer/run/run_files.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "hybrid_trainer/trainer/phase_precision.h"
#include "hybrid_trainer/trainer/rank_checks.h"
#include "src/run/checkpoint_schedule.h"
#include "src/run/rank_agreement.h"
#include "src/run/resolved_config.h"
#include "src/run/resumed_run.h"
#include "src/run/run_base.h"
#include "src/run/run_memory.h"
#include "src/run/run_records.h"
#include "src/run/run_saving.h"
#include "src/run/run_tokenizer.h"
#include "src/run/settings_table.h"
#include "src/run/training_source.h"
#include "src/sharding/rank_links.h"
#include "src/trainer/config_changes.h"
#include "src/trainer/run_model.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kMostSummaryBytes = 1 << 20;

/// Everything that one run holds, built in order; earlier members outlive later ones.
class TrainingRun {
 public:
  TrainingRun(const TrainingRunSettings& settings, std::ostream& console,
              const Interruption& interruption)
      : settings_(settings),
        ranks_(settings.ranks),
        interruption_(interruption),
        source_(open_training_source(settings)),
        config_(resolved_config(settings, *source_, planned_)),
        stream_(make_device_pool(find_device(config_.device, settings.local_rank),
                                 config_.device_budget())),
        host_(make_host_pool(stream_.device(), config_.memory.host_budget.limit())),
        loader_(source_->batches(config_), config_.data.prefetch_depth, batches_stream()),
        validation_(source_->validation(config_, batches_stream())),
        directory_(ranks_.open(settings, config_, source_->described())),
        run_{settings.run.string()},
        saving_(run_.checkpoints(), settings),
        console_(ranks_.console(console, directory_.paths())),
        resumes_(ranks_.on_first(directory_.resumes())) {
    tokenizer_ = source_->tokenizer(config_.model.vocabulary);
    // Before anything was saved another configuration breaks no promise.
    if (resumes_ && has_checkpoint(run_))
      config_before_ = check_same_run(run_, config_, settings_, *source_, tokenizer_.get());
  }

  TrainingRunResult train();

 private:
  TrainingRunResult train_or_resume();
  /// Batches are made by the processor: in its own memory, or in pinned memory for upload.
  const Stream& batches_stream() const {
    return stream_.device().type == DeviceType::kCpu ? stream_ : host_;
  }
  void describe(LanguageModel& model, const HybridTrainer& trainer, RunRecords& records);
  void validate(LanguageModel& model, HybridTrainer& trainer, std::optional<double>& loss,
                std::optional<double>& of_average);
  bool evaluates_after(std::int64_t step, std::int64_t undecided_before,
                       const HybridTrainer& trainer) const;
  void go_back(HybridTrainer& trainer, RunRecords& records, const StepRecord& failed);
  Batch next_batch(HybridTrainer& trainer, RunRecords& records);
  StepRecord step(LanguageModel& model, HybridTrainer& trainer, RunRecords& records);
  StepWish agree(HybridTrainer& trainer, const CheckpointSchedule& schedule);
  void settle(HybridTrainer& trainer, RunRecords& records);
  void compare_weights(LanguageModel& model, HybridTrainer& trainer);
  RunEnd step_to_end(LanguageModel& model, HybridTrainer& trainer, RunRecords& records);
  RunEnd step_and_record(LanguageModel& model, HybridTrainer& trainer, RunRecords& records);
  void summarise_memory(RunRecords& records) const;

  TrainingRunSettings settings_;
  RunRanks ranks_;
  const Interruption& interruption_;
  std::unique_ptr<const TrainingSource> source_;
  std::vector<std::string> planned_;  // what memory.plan chose, in words
  HybridTrainerConfig config_;
  Stream stream_;
  Stream host_;  // of host memory
  BatchLoader loader_;
  std::unique_ptr<EvaluationBatches> validation_;
  RunDirectory directory_;  // of this rank
  RunPaths run_;            // of all
  RunSaving saving_;
  std::ostream& console_;
  bool resumes_;
  std::optional<HybridTrainerConfig> config_before_;  // of the run being resumed
  std::unique_ptr<Tokenizer> tokenizer_;              // of the sample, if the data have one
  std::shared_ptr<MemoryPlaces> places_;
  RunMoment now_;
  std::string lost_rank_;  // what ended the run
};

void TrainingRun::describe(LanguageModel& model, const HybridTrainer& trainer,
                           RunRecords& records) {
  if (!settings_.quiet)
    console_ << settings_table(config_, find_family(config_.model.family, *settings_.registry),
                               model, trainer, source_->described().train_tokens,
                               settings_.data.string(), stream_)
             << std::flush;
  RunSummary& summary = records.summary();
  summary.version = project_version();
  summary.command = settings_.command;
  summary.parameters = model.parameter_count();
  summary.effective_batch = config_.data.batch_size * config_.gradient_accumulation.micro_batches;
  for (Phase phase : kAllPhases)
    summary.phase(phase).precision = precision_name(trainer.dtype_of(phase));
}

void TrainingRun::validate(LanguageModel& model, HybridTrainer& trainer,
                           std::optional<double>& loss, std::optional<double>& of_average) {
  trainer.hold_weights(false);  // no rank's own pass is to send them
  const auto read_out = [&] { return ranks_.evaluate(model, *validation_, config_, stream_); };
  trainer.with_exact_weights([&] { loss = read_out(); });
  trainer.with_average([&] { of_average = read_out(); });
  trainer.hold_weights(true);
}

/// An evaluation that falls due in Predict waits until the prediction is decided.
bool TrainingRun::evaluates_after(std::int64_t step, std::int64_t undecided_before,
                                  const HybridTrainer& trainer) const {
  if (trainer.undecided_steps() > 0) return false;
  const std::int64_t every = config_.training.evaluate_every_steps;
  const bool due = every > 0 && step / every > (step - 1 - undecided_before) / every;
  return due || step == config_.training.steps;
}

Batch TrainingRun::next_batch(HybridTrainer& trainer, RunRecords& records) {
  try {
    return loader_.next();
  } catch (const Error&) {
    if (!ranks_.are_several()) saving_.save_and_tell(trainer, records);  // others do not meet it
    throw;
  }
}

/// One step, and the evaluation that falls due after it.
StepRecord TrainingRun::step(LanguageModel& model, HybridTrainer& trainer, RunRecords& records) {
  const Batch batch = next_batch(trainer, records);
  now_ = {trainer.phase(), trainer.steps_done() + 1};
  records.begin_step(*now_.phase, now_.step);
  const std::int64_t undecided_before = trainer.undecided_steps();
  try {
    ranks_.begin_step();
    StepRecord record = trainer.step(batch);
    ranks_.end_step(config_, record);
    if (!trainer.must_go_back() && evaluates_after(record.step, undecided_before, trainer))
      validate(model, trainer, record.validation_loss, record.average_validation_loss);
    return record;
  } catch (const DivergedStep& error) {
    records.write_failed(error.record);
    saving_.save_and_tell(trainer, records);
    throw;
  } catch (const Diverged&) {  // on the validation split
    saving_.save_and_tell(trainer, records);
    throw;
  }
}

/// The batches since the checkpoint come again.
void TrainingRun::go_back(HybridTrainer& trainer, RunRecords& records, const StepRecord& failed) {
  try {
    trainer.roll_back(run_.checkpoints(), failed);
  } catch (const Diverged&) {
    records.write_failed(failed);
    saving_.save_and_tell(trainer, records);
    throw;
  }
  loader_.seek(trainer.steps_done());
  records.go_back_to(trainer.steps_done());
}

void TrainingRun::compare_weights(LanguageModel& model, HybridTrainer& trainer) {
  trainer.with_exact_weights(
      [&] { check_same_weights(ranks_, trainer.steps_done(), model, stream_); });
}

/// Where that ends the run, it ends saved.
void TrainingRun::settle(HybridTrainer& trainer, RunRecords& records) {
  try {
    trainer.settle();
  } catch (const Diverged&) {
    saving_.save_and_tell(trainer, records);
    throw;
  }
}

/// Where gradients of other ranks are under way, nobody waits for them to say it.
StepWish TrainingRun::agree(HybridTrainer& trainer, const CheckpointSchedule& schedule) {
  const StepWish here{interruption_.requested(), schedule.is_due_by_time()};
  if (const auto late = trainer.late_vote_to_stop(here.stops)) return {.stops = *late};
  return ranks_.agree(here);
}

RunEnd TrainingRun::step_to_end(LanguageModel& model, HybridTrainer& trainer, RunRecords& records) {
  const std::int64_t steps = config_.training.steps;
  std::int64_t saved_at = trainer.steps_done();
  CheckpointSchedule schedule(config_, loader_.source());
  if (ranks_.lead())
    interruption_.let_steps_finish("ended at once, without saving; " + saving_.way_on());
  RunSummary& summary = records.summary();
  if (saved_at >= steps)
    validate(model, trainer, summary.final_validation_loss, summary.final_average_validation_loss);
  trainer.hold_weights(true);
  const bool goes_back = config_.divergence.rolls_back();
  const bool went_back_before = config_before_ && config_before_->divergence.rolls_back();
  if (goes_back && (saved_at == 0 || !went_back_before))  // what it began with is gone back to, too
    saving_.save(trainer, records, CheckpointUse::kResumeAndRollBack);
  while (trainer.steps_done() < steps) {
    const StepWish wish = agree(trainer, schedule);
    if (wish.stops) break;
    const StepRecord record = step(model, trainer, records);
    const bool by_steps = schedule.is_due_by_steps(record.step, trainer.last_return_point());
    const bool save_is_due = by_steps || wish.saves;
    if (save_is_due && !trainer.must_go_back()) settle(trainer, records);
    if (trainer.must_go_back()) {
      go_back(trainer, records, record);
      saved_at = trainer.steps_done();
      schedule.saved();
      continue;
    }
    records.write(record);
    if (settings_.on_step) settings_.on_step(record);
    const bool is_good = !goes_back || trainer.is_healthy();  // to go back to
    const bool saves = save_is_due && is_good;
    if (config_.distributed.compares_weights(record.step, saves)) compare_weights(model, trainer);
    const auto use = by_steps ? CheckpointUse::kResumeAndRollBack : CheckpointUse::kResume;
    if (!saves || !saving_.save(trainer, records, use)) continue;
    schedule.saved();
    saved_at = record.step;
  }
  if (saved_at != trainer.steps_done()) {
    settle(trainer, records);
    if (config_.distributed.compares_weights(trainer.steps_done(), true))
      compare_weights(model, trainer);
    saving_.save_at_the_end(trainer, records);
  }
  trainer.hold_weights(false);
  ranks_.wait_for_all();
  if (trainer.steps_done() == steps) return RunEnd::kFinished;
  records.tell(saving_.stopped_text(trainer.steps_done(), steps));
  return RunEnd::kInterrupted;
}

/// What is simulated is left out where that fails: the run itself is complete.
void TrainingRun::summarise_memory(RunRecords& records) const {
  RunSummary& summary = records.summary();
  const MemoryUse host = host_.pool()->use();
  summary.device_peak_bytes = stream_.pool()->use().most_taken;
  summary.host_peak_bytes = host.most_taken;
  summary.host_peak_by_kind = host.peak;
  summary.file_peak_by_kind = places_->file_use().peak;
  if (ranks_.communicator() != nullptr) summary.distributed = ranks_.summary(config_, lost_rank_);
  if (!ranks_.lead()) return;
  try {
    summary.savings =
        simulate_savings(config_, stream_.device(), *settings_.registry, ranks_.as_simulated());
  } catch (const std::exception& error) {
    records.tell(concat("what options save of memory is not known: ", error.what()));
  }
}

/// Writes summary.json and report.html however the run ends.
RunEnd TrainingRun::step_and_record(LanguageModel& model, HybridTrainer& trainer,
                                    RunRecords& records) {
  const auto finish = [&](const char* end, const std::string& sampled) {
    records.summary().end = end;
    records.add_use_of(trainer);
    summarise_memory(records);
    records.finish(config_json(config_), sampled);
  };
  try {
    const RunEnd end = step_to_end(model, trainer, records);
    const bool finished = end == RunEnd::kFinished;
    // With zero 3 no rank has the model alone.
    const bool samples = finished && (ranks_.lead() || config_.distributed.zero == 3);
    finish(finished ? "finished" : "interrupted",
           samples ? sample_text(model, tokenizer_.get(), stream_) : "");
    return end;
  } catch (const Error& error) {
    if (dynamic_cast<const RankLost*>(&error) != nullptr) lost_rank_ = error.what();
    try {
      finish(error.code() == ExitCode::kDiverged ? "diverged" : "failed", "");
    } catch (const IoError& problem) {
      records.tell(concat("neither summary nor report: ", problem.what()));
    }
    throw;
  }
}

TrainingRunResult TrainingRun::train() {
  try {
    std::filesystem::remove(directory_.paths().shortage());  // of a run that goes on
    return train_or_resume();
  } catch (const OutOfMemory& error) {
    throw_with_snapshot(error, directory_.paths(), now_);
  }
}

TrainingRunResult TrainingRun::train_or_resume() {
  const RunPaths& paths = directory_.paths();
  if (stream_.device().type == DeviceType::kCuda) {
    const MemoryNeed need = simulate_memory(config_, stream_.device(), SimulatedPhases::kAll,
                                            *settings_.registry, ranks_.as_simulated());
    stream_.pool()->reserve(need.device_bytes, "the parts of one step");
  }
  places_ = std::make_shared<MemoryPlaces>(config_.memory, stream_, host_.pool());
  const auto base = base_of_run(run_, settings_.init_from);
  const auto made = make_run_model(config_, base, *places_, *settings_.registry);
  LanguageModel& model = *made;
  if (settings_.adapter) read_adapter_weights(*settings_.adapter, model, stream_);
  HybridTrainer trainer(model, config_, stream_, places_, ranks_.communicator());
  std::vector<std::string> early = planned_;  // events from before the console's records exist
  trainer.on_event([&](const std::string& text) { early.push_back(text); });
  const bool resumed = resumes_ && trainer.resume(run_.checkpoints(), config_before_);
  check_same_start(ranks_, trainer.steps_done(), model, stream_);
  loader_.seek(trainer.steps_done());
  if (const auto why = why_no_predictions(config_, ranks_.size(), *settings_.registry)) {
    trainer.give_up_predicting();
    early.push_back(*why);
  }
  if (resumes_ && !resumed)
    early.push_back(concat("there is no checkpoint in ", run_.checkpoints(), ": begins at step 1"));
  if (!resumed && begins_with_another_tokenizer(settings_.init_from, tokenizer_.get()))
    early.push_back(concat("the tokenizer of ", settings_.init_from->string(),
                           " is not the data's: ids meant other text to its weights; prepare the "
                           "text with --tokenizer ",
                           settings_.init_from->string()));
  check_steps_left(config_, trainer);
  const bool was_finished = ranks_.on_first(
      resumed && trainer.steps_done() == config_.training.steps && end_of_run(run_) == "finished");
  if (!was_finished && config_.lora.is_on() && base) write_run_base(paths, *base);
  if (!was_finished) {
    const RunData data = run_data(run_, settings_, *source_, tokenizer_.get(), resumes_);
    write_run_files(paths, config_, data);
  }
  RunRecords records(paths, config_.training.steps, console_, settings_.quiet);
  records.resume_after(trainer.steps_done());
  for (const std::string& text : source_->notes()) records.tell(text);
  if (const std::string link = imitated_link_text(config_.distributed); !link.empty())
    records.tell(concat("the link between ranks is imitated: ", link));
  for (const std::string& text : early) records.tell(text);
  trainer.on_event({});
  trainer.on_mishap([&](const std::string& text) { records.tell(text); });
  if (was_finished) {
    records.tell(concat("the run is finished: ", trainer.steps_done(),
                        " steps; a larger training.steps goes on"));
    return {RunEnd::kWasFinished, {}, read_file(run_.summary(), kMostSummaryBytes)};
  }
  records.watch(config_.memory.timeline, {stream_.pool(), host_.pool()});
  describe(model, trainer, records);
  if (resumed) records.tell(concat("goes on after step ", trainer.steps_done()));
  const RunEnd end = step_and_record(model, trainer, records);
  return {end, records.summary(), to_json(records.summary())};
}

}  // namespace

TrainingRunResult run_training(const TrainingRunSettings& given, std::ostream& console) {
  check_same_call(RunRanks(given.ranks), given.config, given.resume);
  RunRanks(given.ranks).agree_on_processor(console);
  TrainingRunSettings settings = with_base(given);
  settings.config.validate(*settings.registry);
  if (settings.ranks != nullptr || settings.config.phases.lacks_other_ranks())
    check_ranks(settings.config, settings.ranks == nullptr ? 1 : settings.ranks->size());
  std::optional<Interruption> own;  // made before any thread that computes
  const Interruption& interruption = settings.interruption ? *settings.interruption : own.emplace();
  set_threads(settings.config.training.threads == 0
                  ? std::max(1, processor_info().cores / settings.local_ranks)
                  : static_cast<int>(settings.config.training.threads));
  std::optional<RankLinks> links;
  if (settings.ranks != nullptr && settings.ranks->size() > 1) {
    const Device device = find_device(settings.config.device);
    settings.ranks = &links.emplace(*settings.ranks, settings.config.distributed, device).ranks();
  }
  return TrainingRun(settings, console, interruption).train();
}

}  // namespace hybrid_trainer
