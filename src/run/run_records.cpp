#include "src/run/run_records.h"

#include "hybrid_trainer/core/error.h"
#include "src/files/output_file.h"
#include "src/observability/report.h"

namespace hybrid_trainer {

RunRecords::RunRecords(RunPaths paths, std::int64_t total_steps, std::ostream& console, bool quiet)
    : paths_(std::move(paths)),
      metrics_(paths_.metrics()),
      console_(console, total_steps, ConsoleStyle::for_stderr(quiet)) {}

std::int64_t RunRecords::add_written_steps() {
  std::int64_t count = 0;
  for_each_record(paths_.metrics(), [&](const StepRecord& record) {
    summary_.add(record);
    ++count;
  });
  return count;
}

void RunRecords::resume_after(std::int64_t step) {
  resumed_after_ = step;
  metrics_.truncate_after(step);
  const std::int64_t kept = add_written_steps();
  if (kept == step) return;
  summary_.steps = step;
  report(concat("metrics.jsonl has ", kept, " of the ", step,
                " completed steps; curves and totals do not include the others"));
}

/// Calls `write` if the run has a timeline. Stops the timeline after a write error.
template <class Write>
void RunRecords::write_timeline(const Write& write) {
  if (!timeline_) return;
  try {
    write(*timeline_);
  } catch (const IoError& error) {
    timeline_.reset();
    report(concat("stopped writing memory_timeline.json: ", error.what()));
  }
}

/// Calls `write`. If it fails, stops the events for TensorBoard.
template <class Write>
void RunRecords::write_events(const Write& write) {
  try {
    write();
  } catch (const std::exception& error) {
    tensorboard_.reset();
    report(concat("stopped writing tensorboard/: ", error.what()));
  }
}

void RunRecords::write_tensorboard(const std::string& settings) {
  write_events([&] { tensorboard_.emplace(paths_.tensorboard(), paths_.metrics(), settings); });
}

void RunRecords::watch(std::int64_t steps, std::vector<std::shared_ptr<MemoryPool>> pools) {
  if (steps == 0) return;
  timeline_.emplace(paths_.timeline(), steps, std::move(pools));
  write_timeline([this](MemoryTimeline& timeline) { timeline.resume_after(resumed_after_); });
}

void RunRecords::begin_step(Phase phase, std::int64_t step) {
  if (timeline_) timeline_->begin_step(phase, step);
}

void RunRecords::write(const StepRecord& record) {
  write_timeline([](MemoryTimeline& timeline) { timeline.end_step(); });
  summary_.add(record);
  write_metrics(record);
}

void RunRecords::write_failed(const StepRecord& record) {
  ++summary_.count(record.recovery);
  write_metrics(record);
}

void RunRecords::rewind_to(std::int64_t step) {
  RunSummary fresh;
  std::swap(fresh, summary_);
  summary_.version = fresh.version;
  summary_.command = fresh.command;
  summary_.first_command = fresh.first_command;
  summary_.parameters = fresh.parameters;
  summary_.effective_batch = fresh.effective_batch;
  for (const Phase phase : kAllPhases)
    summary_.phase(phase).precision = fresh.phase(phase).precision;
  metrics_.truncate_after(step);
  add_written_steps();
  summary_.steps = step;
  if (tensorboard_) write_events([&] { tensorboard_->rewrite_file(); });
}

void RunRecords::write_metrics(const StepRecord& record) {
  console_.write(record);
  if (tensorboard_) write_events([&] { tensorboard_->write(record); });
  if (metrics_failed_) return;
  try {
    metrics_.write(record);
  } catch (const IoError& error) {
    metrics_failed_ = true;
    report(concat("stopped writing metrics.jsonl at step ", record.step, ": ", error.what()));
  }
}

void RunRecords::sync() {
  if (metrics_failed_ || sync_failed_) return;
  try {
    metrics_.sync();
  } catch (const IoError& error) {
    sync_failed_ = true;
    report(concat(error.what(), "; a power failure may lose the newest records"));
  }
}

void RunRecords::finish(const std::string& settings_text, const ModelTexts& texts) {
  console_.finish();
  if (!texts.answers.empty()) {
    write_answers(paths_.answers(), texts.answers);
    console_.report(answers_text(texts.answers));
  }
  write_timeline([](MemoryTimeline& timeline) { timeline.finish(); });
  replace_file(paths_.summary(), to_json(summary_));
  const std::string title =
      std::filesystem::path(paths_.root).lexically_normal().filename().string();
  write_report(paths_.report(), {.title = title,
                                 .metrics = paths_.metrics(),
                                 .summary = summary_,
                                 .settings = settings_text,
                                 .texts = texts});
}

}  // namespace hybrid_trainer
