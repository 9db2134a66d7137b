#pragma once

#include <memory>

#include "hybrid_trainer/files/run_directory.h"
#include "hybrid_trainer/observability/model_texts.h"
#include "hybrid_trainer/observability/run_summary.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "src/observability/console_sink.h"
#include "src/observability/jsonl_sink.h"
#include "src/observability/memory_reports.h"
#include "src/observability/tensorboard_sink.h"

namespace hybrid_trainer {

/// Writes a run's records: metrics.jsonl, progress on the console, memory_timeline.json and
/// tensorboard/ if enabled, summary.json and report.html. A full disk does not stop the run: a
/// write error is reported once and training continues.
class RunRecords {
 public:
  RunRecords(RunPaths paths, std::int64_t total_steps, std::ostream& console, bool quiet = false);
  /// Removes records after `step`, for a run that resumes there.
  void resume_after(std::int64_t step);
  /// Starts to record every allocation in the first `steps` steps of each phase.
  void watch(std::int64_t steps, std::vector<std::shared_ptr<MemoryPool>> pools);
  /// Enables tensorboard/ for past and future records. `settings` is the configuration as text.
  void write_tensorboard(const std::string& settings);
  void begin_step(Phase phase, std::int64_t step);
  void write(const StepRecord& record);
  /// Writes the record of a step that ends the run. The summary counts the step only as a recovery.
  void write_failed(const StepRecord& record);
  /// Removes the records of all steps after `step`.
  void rewind_to(std::int64_t step);
  /// Flushes all records to disk. Called before each checkpoint, so that a resumed run has them.
  void sync();
  void report(const std::string& text) { console_.report(text); }
  RunSummary& summary() { return summary_; }
  /// Writes summary.json and report.html. If `texts` has answers, also writes answers.json and
  /// prints the answers.
  void finish(const std::string& settings_text, const ModelTexts& texts);

 private:
  std::int64_t add_written_steps();
  void write_metrics(const StepRecord& record);
  template <class Write>
  void write_timeline(const Write& write);
  template <class Write>
  void write_events(const Write& write);
  RunPaths paths_;
  JsonlSink metrics_;
  ConsoleSink console_;
  std::optional<MemoryTimeline> timeline_;
  std::optional<TensorBoardSink> tensorboard_;
  RunSummary summary_;
  std::int64_t resumed_after_ = 0;
  bool metrics_failed_ = false;
  bool sync_failed_ = false;
};

}  // namespace hybrid_trainer
