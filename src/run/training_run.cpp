#include "hybrid_trainer/run/training_run.h"

#include <ostream>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/config/config_changes.h"
#include "src/config/config_checks.h"
#include "src/core/cuda_runtime.h"
#include "src/core/machine.h"
#include "src/core/messages.h"
#include "src/files/checkpoint.h"
#include "src/files/config_fields.h"
#include "src/files/output_file.h"
#include "src/run/run_files.h"
#include "src/run/run_ranks.h"
#include "src/run/run_settings.h"
#include "src/run/training_loop.h"
#include "src/trainer/planning/device_memory.h"
#include "src/trainer/planning/memory_breakdown.h"
#include "src/trainer/sharding/rank_links.h"

namespace hybrid_trainer {

void Task::write_files(const RunPaths& own, const RunPaths&, const HybridTrainerConfig& config,
                       bool) const {
  write_run_config(own, config);
}

std::vector<NamedText> Task::settings(const HybridTrainerConfig& config, LossModel& model) const {
  return {{"model", concat(units::grouped(model.parameter_count()), " parameters")},
          {"batch", concat(config.effective_batch(), " examples per step")}};
}

namespace {

/// Returns "; embedding by sgd, *.bias by adamw".
std::string groups_text(const OptimizerConfig& optimizer) {
  std::vector<std::string> texts;
  for (const OptimizerGroupConfig& group : optimizer.groups) {
    const OptimizerConfig own = optimizer.of(group);
    texts.push_back(concat(group.match, " by ", own.name, " at ", own.learning_rate));
  }
  return texts.empty() ? "" : "; " + join(texts);
}

/// Returns "video.*: recompute 1; fusion.*: lora 16, base nf4".
std::string parts_line(const HybridTrainerConfig& config) {
  const FieldNode tree = field_tree(config);
  std::vector<std::string> parts;
  for (const FieldNode& part : field_at(tree, "parts")->elements) {
    std::vector<std::string> keys;
    for (const FieldNode& key : part.fields)
      if (!key.left_out) keys.push_back(concat(key.name, " ", field_text(key)));
    parts.push_back(concat(part.name, ": ", join(keys)));
  }
  return join(parts, "; ");
}

std::string phases_line(const PhaseConfig& phases) {
  if (phases.max_predict_steps == 0) return "plain training (phases.max_predict_steps is 0)";
  return concat("warmup ", phases.warmup_steps, ", full ", phases.full_steps, ", predict up to ",
                phases.max_predict_steps, phases.predict_text());
}

std::string finder_text(const LearningRateFinderConfig& finder) {
  if (!finder.is_on()) return "";
  return concat("; warmup probes every ", finder.interval,
                " updates for a learning rate that is too low");
}

std::string precision_line(const HybridTrainer& trainer, bool predicts) {
  std::string text;
  for (Phase phase : kAllPhases) {
    if (!predicts && (phase == Phase::kPredict || phase == Phase::kCorrect)) continue;
    const char* const name = precision_name(trainer.precision().of(phase));
    text += concat(text.empty() ? "" : ", ", name_of(phase), " ", name);
  }
  const std::string& reason = trainer.precision().reason();
  return reason.empty() ? text : concat(text, "; auto is ", reason);
}

std::string device_line(const Stream& stream) {
  const Device device = stream.device();
  if (device.type == DeviceType::kCpu) return "CPU";
  return concat(name_of(device), ", ", hardware_name_of(device), ", ",
                units::bytes(stream.pool()->use().fresh_total), " reserved for its steps");
}

/// Returns the settings to show before the first step, one per line: the task's `rows` of name and
/// text, then optimizer, phases, precision and machine.
std::string settings_table(std::vector<std::pair<std::string, std::string>> rows,
                           const HybridTrainerConfig& config, const HybridTrainer& trainer,
                           const Stream& stream) {
  const OptimizerConfig& optimizer = config.optimizer;
  const std::vector<std::pair<std::string, std::string>> more{
      {"steps", concat(config.training.steps, ", seed ", config.training.seed)},
      {"optimizer", concat(optimizer.name, ", learning rate ", optimizer.learning_rate, ", ",
                           config.schedule.name, " schedule, weight decay ", optimizer.weight_decay,
                           ", clip ", optimizer.clip_norm, groups_text(optimizer))},
      {"phases", phases_line(config.phases) + finder_text(config.learning_rate_finder)},
      {"precision", precision_line(trainer, config.phases.max_predict_steps > 0)},
      {"device", device_line(stream)},
      {"machine",
       concat(processor_info().name, ", ", threads(), " threads, ", name_of(instruction_set()))},
  };
  if (!config.parts.empty()) rows.emplace_back("parts", parts_line(config));
  rows.insert(rows.end(), more.begin(), more.end());
  std::string text;
  for (const auto& [name, value] : rows)
    text += concat("  ", name, std::string(11 - name.size(), ' '), value, "\n");
  return text;
}

void check_steps_left(const HybridTrainerConfig& config, const HybridTrainer& trainer) {
  const bool is_under_way = trainer.machine().undecided_steps() > 0 ||
                            trainer.progress().has_delayed_updates(config.phases);
  const std::int64_t least = trainer.steps_done() + (is_under_way ? 1 : 0);
  if (config.training.steps >= least) return;
  throw ConfigError(
      {concat("training.steps: got ", config.training.steps, ", but ", trainer.steps_done(),
              " steps are completed", is_under_way ? ", with a prediction in progress" : "",
              "; want at least ", least)});
}

/// Returns suggestions for a run that does not fit on the device together with CUDA's libraries.
std::string memory_hint(const MemoryConfig& memory) {
  std::string way = "a smaller data.batch_size";
  if (memory.plan != "auto")
    way += ", or memory.plan=auto, which chooses options that fit (`hybrid plan` lists them)";
  return way + "; to try it anyway, set memory.device_budget";
}

constexpr std::size_t kMaxSummaryBytes = 1 << 20;

/// All state of one run. Members outlive the members after them.
class TrainingRun {
 public:
  TrainingRun(const TrainingRunSettings& settings, std::ostream& console,
              const Interruption& interruption)
      : settings_(settings),
        ranks_(settings.ranks),
        interruption_(interruption),
        task_(settings.task(settings)),
        config_(resolved_config(settings, *task_, planned_)),
        stream_(make_device_pool(find_device(config_.device, settings.local_rank),
                                 config_.device_budget())),
        host_(make_host_pool(stream_.device(), config_.memory.host_budget.limit())),
        loader_(shuffled_batches(task_->training(config_), config_), config_.data.prefetch_depth,
                batches_stream()),
        evaluation_(task_->validation(config_), config_.evaluation_batch(), batches_stream()),
        directory_(ranks_.open(settings, config_, *task_)),
        run_{settings.run.string()},
        saving_(run_.checkpoints(), settings),
        console_(ranks_.console(console, directory_.paths())),
        resumes_(ranks_.on_first(directory_.resumes())) {
    // The configuration may change until the first checkpoint.
    if (!resumes_ || !has_checkpoint(run_)) return;
    config_before_ = config_of_run(run_);
    check_changes(config_changes(*config_before_, config_));
    task_->check_same(run_);
  }

  TrainingRunResult train() {
    try {
      std::filesystem::remove(directory_.paths().shortage());  // from an earlier attempt
      TrainingRunResult result = train_or_resume();
      if (result.end != RunEnd::kInterrupted && ranks_.lead()) export_model();
      return result;
    } catch (const OutOfMemory& error) {
      throw_with_snapshot(error, directory_.paths(), now_);
    }
  }

 private:
  TrainingRunResult train_or_resume() {
    const RunPaths& paths = directory_.paths();
    take_device_memory();
    places_ = std::make_shared<MemoryPlaces>(config_.memory, stream_, host_.pool());
    const auto made = task_->make_model(config_, *places_);
    LossModel& model = *made;
    std::vector<std::string> early = planned_;  // events before the console's records exist
    task_->prepare({.config = config_,
                    .model = model,
                    .run = run_,
                    .resumes = resumes_ && has_checkpoint(run_),
                    .stream = stream_,
                    .ranks = ranks_.communicator(),
                    .report = [&](const std::string& text) {
                      if (!settings_.quiet)
                        console_ << text << std::endl;  // flush: it may take long
                    }});
    HybridTrainer trainer(model, config_, stream_, places_, ranks_.communicator());
    trainer.listen([&](const std::string& text) { early.push_back(text); });
    const bool resumed = resumes_ && trainer.resume(run_.checkpoints());
    check_same_start(ranks_, trainer.steps_done(), model, stream_);
    loader_.seek(trainer.steps_done());
    if (const ModelRegistry* const families = task_->simulated_by()) {
      if (const auto why = why_no_predictions(config_, ranks_.size(), *families)) {
        trainer.machine().disable_prediction();
        early.push_back(*why);
      }
    }
    if (resumes_ && !resumed)
      early.push_back(concat("there is no checkpoint in ", run_.checkpoints(),
                             ", so the run starts at step 1"));
    check_steps_left(config_, trainer);
    const bool is_at_end = trainer.steps_done() == config_.training.steps ||
                           trainer.progress().judge.is_patience_exhausted();
    const bool was_finished =
        ranks_.on_first(resumed && is_at_end && end_of_run(run_) == "finished");
    if (!was_finished) task_->write_files(paths, run_, config_, resumes_);
    RunRecords records(paths, config_.training.steps, console_, settings_.quiet);
    records.resume_after(trainer.steps_done());
    for (const std::string& text : task_->notes(!resumed)) records.report(text);
    if (const std::string link = simulated_link_text(config_.distributed); !link.empty())
      records.report(concat("the link between ranks is simulated: ", link));
    for (const std::string& text : early) records.report(text);
    trainer.listen({}, [&](const std::string& text) { records.report(text); });
    if (was_finished) {
      records.report(concat("the run is finished: ", trainer.steps_done(),
                            trainer.progress().judge.is_patience_exhausted()
                                ? " steps; to continue, set a larger training.patience, or 0"
                                : " steps; to continue, set a larger training.steps"));
      return {RunEnd::kWasFinished, {}, read_file(run_.summary(), kMaxSummaryBytes)};
    }
    records.watch(config_.memory.timeline, {stream_.pool(), host_.pool()});
    if (config_.observability.tensorboard && ranks_.lead())
      records.write_tensorboard(config_json(config_));
    describe(model, trainer, records);
    if (resumed) records.report(concat("the run resumes after step ", trainer.steps_done()));
    const RunEnd end = step_and_record(model, trainer, records);
    return {end, records.summary(), to_json(records.summary())};
  }
  /// Returns the stream for batches: CPU device memory, or pinned memory for upload.
  const Stream& batches_stream() const {
    return stream_.device().type == DeviceType::kCpu ? stream_ : host_;
  }
  void export_model() const {
    if (settings_.export_to.empty()) return;
    task_->write_export(run_, settings_.export_to);
    if (!settings_.quiet) console_ << "wrote " << settings_.export_to.string() << std::endl;
  }
  void take_device_memory() {
    const bool resumes = resumes_ && has_checkpoint(run_);
    if (!resumes && ranks_.lead()) std::filesystem::remove_all(run_.algorithms());
    prepare_device(stream_, {.folder = run_.algorithms(), .resumes = resumes});
    const std::string warning = margin_warning(config_.device_budget(), stream_.device());
    if (!warning.empty()) planned_.push_back(warning);
    if (const ModelRegistry* const families = task_->simulated_by())
      reserve_device_memory(config_, stream_, memory_hint(config_.memory), *families,
                            ranks_.as_simulated());
  }
  void describe(LossModel& model, const HybridTrainer& trainer, RunRecords& records) {
    if (!settings_.quiet)
      console_ << settings_table(task_->settings(config_, model), config_, trainer, stream_)
               << std::flush;
    RunSummary& summary = records.summary();
    summary.version = project_version();
    summary.command = settings_.command;
    const std::string begun_with =
        std::filesystem::exists(run_.data()) ? data_of_run(run_).command : "";
    if (begun_with != settings_.command) summary.first_command = begun_with;
    summary.parameters = model.parameter_count();
    summary.effective_batch = config_.effective_batch();
    summary.masked = config_.masks();
    for (Phase phase : kAllPhases)
      summary.phase(phase).precision = precision_name(trainer.precision().of(phase));
  }
  /// Adds the memory peaks and simulated savings. Omits the savings if their simulation fails.
  void summarize_memory(RunRecords& records) const {
    RunSummary& summary = records.summary();
    const MemoryUse host = host_.pool()->use();
    summary.device_peak_bytes = stream_.pool()->use().max_taken;
    summary.host_peak_bytes = host.max_taken;
    summary.host_peak_by_kind = host.peak;
    summary.file_peak_by_kind = places_->file_use().peak;
    if (ranks_.communicator() != nullptr) summary.distributed = ranks_.summary(config_, lost_rank_);
    const ModelRegistry* const families = task_->simulated_by();
    if (!ranks_.lead() || families == nullptr) return;
    try {
      summary.savings =
          simulate_savings(config_, stream_.device(), *families, ranks_.as_simulated());
    } catch (const std::exception& error) {
      records.report(concat("cannot compute the memory that options would save: ", error.what()));
    }
  }
  /// Writes summary.json and report.html regardless of how the run ends.
  RunEnd step_and_record(LossModel& model, HybridTrainer& trainer, RunRecords& records) {
    const auto finish = [&](const char* end, const ModelTexts& texts) {
      records.summary().end = end;
      trainer.add_use_to(records.summary());
      summarize_memory(records);
      records.finish(config_json(config_), texts);
    };
    try {
      const bool rolled_back_before = config_before_ && config_before_->divergence.rolls_back();
      const bool saves_first = config_.divergence.rolls_back() &&  // initial state
                               (trainer.steps_done() == 0 || !rolled_back_before);
      TrainingLoop loop({settings_, config_, interruption_, stream_, ranks_, loader_, evaluation_,
                         saving_, run_.checkpoints(), model, trainer, records, now_});
      const RunEnd end = loop.step_to_end(saves_first);
      const bool finished = end == RunEnd::kFinished;
      // With zero 3, sampling needs all ranks.
      const bool samples = finished && (ranks_.lead() || config_.distributed.zero == 3);
      if (samples)
        for (const std::string& text : task_->closing(config_, model, stream_))
          records.report(text);
      finish(finished ? "finished" : "interrupted", samples ? texts_of(model) : ModelTexts{});
      return end;
    } catch (const Error& error) {
      if (dynamic_cast<const RankLost*>(&error) != nullptr) lost_rank_ = error.what();
      try {
        finish(error.code() == ExitCode::kDiverged ? "diverged" : "failed", {});
      } catch (const IoError& problem) {
        records.report(concat("cannot write summary and report: ", problem.what()));
      }
      throw;
    }
  }
  ModelTexts texts_of(LossModel& model) const {
    ModelTexts texts{.answers = task_->answers(model, stream_)};
    if (texts.answers.empty()) texts.sample = task_->sample(model, stream_);
    return texts;
  }

  TrainingRunSettings settings_;
  RunRanks ranks_;
  const Interruption& interruption_;
  std::unique_ptr<Task> task_;
  std::vector<std::string> planned_;  // the planner's choices, and warnings
  HybridTrainerConfig config_;
  Stream stream_;
  Stream host_;  // host memory
  BatchLoader loader_;
  OrderedBatches evaluation_;
  RunDirectory directory_;  // folder of this rank
  RunPaths run_;            // paths of the whole run
  RunSaving saving_;
  std::ostream& console_;
  bool resumes_;
  std::optional<HybridTrainerConfig> config_before_;  // configuration of the resumed run
  std::shared_ptr<MemoryPlaces> places_;
  RunPosition now_;
  std::string lost_rank_;  // message of the RankLost that ended the run
};

}  // namespace

TrainingRunResult run_training(const TrainingRunSettings& given, std::ostream& console) {
  check_same_call(RunRanks(given.ranks), given.config, given.resume);
  RunRanks(given.ranks).agree_on_processor(console);
  TrainingRunSettings settings = given;
  settings.config.validate(*settings.registry);
  if (!settings.export_to.empty())
    OutputFolder(settings.export_to, OutputFolder::Existing::kRefuse).require_free();
  if (settings.ranks != nullptr || settings.config.phases.traits().runs_ahead_of_ranks)
    check_ranks(settings.config, settings.ranks == nullptr ? 1 : settings.ranks->size());
  std::optional<Interruption> own;  // made before any compute thread
  const Interruption& interruption = settings.interruption ? *settings.interruption : own.emplace();
  set_threads(settings.config.training.threads, settings.local_ranks);
  std::optional<RankLinks> links;
  if (settings.ranks != nullptr && settings.ranks->size() > 1) {
    const Device device = find_device(settings.config.device);
    settings.ranks = &links.emplace(*settings.ranks, settings.config.distributed, device).ranks();
  }
  return TrainingRun(settings, console, interruption).train();
}

}  // namespace hybrid_trainer
