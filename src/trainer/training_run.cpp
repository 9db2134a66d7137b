#include "hybrid_trainer/trainer/training_run.h"

#include <ostream>

#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/data/batch_loader.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/io/json_fields.h"
#include "hybrid_trainer/nn/master_weights_scope.h"
#include "hybrid_trainer/trainer/evaluation.h"
#include "hybrid_trainer/trainer/hugging_face.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "hybrid_trainer/trainer/interruption.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "hybrid_trainer/trainer/phase_precision.h"
#include "hybrid_trainer/trainer/run_files.h"
#include "hybrid_trainer/trainer/text_generation.h"
#include "src/trainer/run_records.h"
#include "src/trainer/settings_table.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kSampleTokens = 120;

std::shared_ptr<MemoryPool> device_pool(const HybridTrainerConfig& config) {
  const auto budget_mb = static_cast<std::size_t>(config.training.memory_budget_mb);
  const Device device = find_device(config.device);
  if (budget_mb == 0) return make_device_pool(device);
  return make_device_pool(device, budget_mb * 1'000'000);
}

/// The config with what the data, the --init-from folder and the machine decide filled in. Throws
/// ConfigError.
HybridTrainerConfig resolved(const TrainingRunSettings& settings, const TokenDataset& train) {
  HybridTrainerConfig config = settings.config;
  if (settings.init_from)
    config.model = read_hugging_face_model_config(*settings.init_from, config.model.dropout);
  const std::int64_t known = train.vocabulary_size().value_or(0);
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
  config.validate();
  return config;
}

/// All that one run holds, built in order; its parts outlive each other from top to bottom.
class TrainingRun {
 public:
  TrainingRun(const TrainingRunSettings& settings, std::ostream& console)
      : settings_(settings),
        console_(console),
        train_(settings.data, Split::kTrain, known_vocabulary(settings.config)),
        validation_(settings.data, Split::kValidation, known_vocabulary(settings.config)),
        config_(resolved(settings, train_)),
        stream_(device_pool(config_)),
        host_(make_host_pool(stream_.device())),
        loader_(train_, batch_settings(config_), batches_stream()),
        windows_(validation_, config_.data.batch_size, config_.data.sequence_length,
                 batches_stream()),
        directory_(settings.run.string(), settings.resume ? RunMode::kResume : RunMode::kNew) {
    if (directory_.resumes()) check_same_model(directory_.paths(), config_);
  }

  TrainingRunResult train();

 private:
  static std::optional<std::int64_t> known_vocabulary(const HybridTrainerConfig& config) {
    if (config.model.vocabulary == 0) return {};
    return config.model.vocabulary;
  }
  static BatchSettings batch_settings(const HybridTrainerConfig& config) {
    return {.batch_size = config.data.batch_size * config.gradient_accumulation.micro_batches,
            .sequence_length = config.data.sequence_length,
            .shuffle = config.data.shuffle,
            .seed = static_cast<std::uint64_t>(config.training.seed)};
  }
  /// Batches are made by the processor: in its own memory, or in pinned memory to be copied from.
  const Stream& batches_stream() const {
    return stream_.device().type == DeviceType::kCpu ? stream_ : host_;
  }
  void describe(Gpt2& model, const HybridTrainer& trainer, RunRecords& records);
  double validation_loss(Gpt2& model);
  void save(HybridTrainer& trainer, RunRecords& records);
  std::string sample(Gpt2& model);
  RunEnd step_to_end(Gpt2& model, HybridTrainer& trainer, RunRecords& records);

  TrainingRunSettings settings_;
  std::ostream& console_;
  TokenDataset train_, validation_;
  HybridTrainerConfig config_;
  Stream stream_;
  Stream host_;  // of host memory
  BatchLoader loader_;
  EvaluationWindows windows_;
  RunDirectory directory_;
};

void TrainingRun::describe(Gpt2& model, const HybridTrainer& trainer, RunRecords& records) {
  console_ << settings_table(config_, model, trainer, train_.tokens(), settings_.data.string(),
                             stream_)
           << std::flush;
  RunSummary& summary = records.summary();
  summary.version = project_version();
  summary.command = settings_.command;
  summary.parameters = model.parameter_count();
  summary.effective_batch = batch_settings(config_).batch_size;
  for (Phase phase : kAllPhases)
    summary.phase(phase).precision = precision_name(trainer.dtype_of(phase));
}

double TrainingRun::validation_loss(Gpt2& model) {
  const MasterWeightsScope masters(model);
  return evaluate(model, windows_, DType::kF32, stream_).loss;
}

/// A checkpoint that cannot be written is told and training goes on; the ones before it stay.
void TrainingRun::save(HybridTrainer& trainer, RunRecords& records) {
  try {
    trainer.save(directory_.paths().checkpoints());
  } catch (const IoError& error) {
    if (trainer.steps_done() >= config_.training.steps) throw;
    records.note(concat("no checkpoint at step ", trainer.steps_done(), ": ", error.what(),
                        "; training goes on"));
  }
}

RunEnd TrainingRun::step_to_end(Gpt2& model, HybridTrainer& trainer, RunRecords& records) {
  const Interruption interruption;
  const std::int64_t steps = config_.training.steps,
                     evaluate_every = config_.training.evaluate_every_steps;
  std::int64_t saved_at = trainer.steps_done();
  while (trainer.steps_done() < steps && !interruption.requested()) {
    StepRecord record = trainer.step(loader_.next());
    const bool last = record.step == steps;
    if (last || (evaluate_every > 0 && record.step % evaluate_every == 0))
      record.validation_loss = validation_loss(model);
    records.write(record);
    if (last ||
        (config_.checkpoint.every_steps > 0 && record.step % config_.checkpoint.every_steps == 0)) {
      save(trainer, records);
      saved_at = record.step;
    }
  }
  if (trainer.steps_done() == steps) return RunEnd::kFinished;
  if (saved_at != trainer.steps_done()) save(trainer, records);
  records.note(concat("stopped after step ", trainer.steps_done(), " of ", steps,
                      "; --resume goes on from here"));
  return RunEnd::kInterrupted;
}

std::string TrainingRun::sample(Gpt2& model) {
  if (!train_.info()) return "";
  const MasterWeightsScope masters(model);
  std::string text;
  GenerationSettings generation{.tokens = kSampleTokens};
  generation.sampling.temperature = 0.8f;
  generate_text(
      model, *load_tokenizer(settings_.data), "", generation,
      [&](std::string_view piece) { text += piece; }, stream_);
  return text;
}

TrainingRunResult TrainingRun::train() {
  const RunPaths& paths = directory_.paths();
  if (stream_.device().type == DeviceType::kCuda) {
    stream_.pool()->reserve(simulated_step_bytes(config_), "the parts of one step");
  }
  Gpt2 model(config_.model, static_cast<std::uint64_t>(config_.training.seed), stream_);
  if (settings_.init_from) read_hugging_face_weights(*settings_.init_from, model, stream_);
  HybridTrainer trainer(model, config_, stream_, host_.pool());
  std::vector<std::string> early;  // told while there is no console of records yet
  trainer.on_event([&](const std::string& text) { early.push_back(text); });
  const bool resumed = directory_.resumes() && trainer.resume(paths.checkpoints());
  loader_.seek(trainer.steps_done());

  RunRecords records(paths, config_.training.steps, console_);
  records.resume_after(trainer.steps_done());
  for (const std::string& text : early) records.note(text);
  trainer.on_event([](const std::string&) {});
  if (resumed && trainer.steps_done() >= config_.training.steps) {
    records.note(concat("the run is finished: ", trainer.steps_done(),
                        " steps; a larger training.steps goes on"));
    return {RunEnd::kWasFinished, records.summary()};
  }
  write_run_files(paths, config_, settings_.data);
  describe(model, trainer, records);
  if (resumed) records.note(concat("goes on after step ", trainer.steps_done()));

  const RunEnd end = step_to_end(model, trainer, records);
  const PhaseStatistics& statistics = trainer.statistics();
  records.summary().predictions = statistics.predictions;
  records.finish(config_json(config_), end == RunEnd::kFinished ? sample(model) : "");
  return {end, records.summary()};
}

}  // namespace

TrainingRunResult run_training(const TrainingRunSettings& settings, std::ostream& console) {
  settings.config.validate();
  set_threads(settings.config.training.threads == 0
                  ? processor_info().cores
                  : static_cast<int>(settings.config.training.threads));
  return TrainingRun(settings, console).train();
}

}  // namespace hybrid_trainer
