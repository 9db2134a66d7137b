#pragma once

#include <memory>

#include "hybrid_trainer/files/run_directory.h"
#include "hybrid_trainer/observability/run_summary.h"
#include "src/core/clock.h"
#include "src/observability/jsonl_sink.h"
#include "src/observability/report.h"

namespace hybrid_trainer {

/// A run's state, read from its files. Reads only new data and writes nothing.
class WatchedRun {
 public:
  enum class Change { kNone, kState, kMore, kReset };
  using Visit = std::function<void(const StepRecord&)>;

  WatchedRun(const std::filesystem::path& root, std::string name);
  /// Reads new data and visits each new record. Returns kReset if the run rolled back, or began or
  /// resumed at an earlier step; all records were then visited again. Throws IoError.
  Change refresh(const Visit& visit = {});

  const std::string& name() const { return name_; }
  const RunPaths& paths() const { return paths_; }
  bool has_steps() const { return summary_.steps > 0; }
  const StepRecord& last() const { return last_; }
  const ReportContent& content() const { return content_; }
  /// Returns the summary of the records so far, completed from summary.json once it exists.
  const RunSummary& summary() const { return summary_; }
  /// Returns "running", "waiting" (no step yet), "finished", "interrupted", "diverged", "failed",
  /// or "killed" if the run ended without a summary.
  const std::string& state() const { return state_; }
  bool is_active() const { return state_ == "running" || state_ == "waiting"; }
  /// Returns the command that started the run, as typed or reported, or "" if it is unknown.
  const std::string& command() const { return command_; }
  std::int64_t planned_steps() const { return planned_steps_; }  // 0: unknown
  std::size_t device_budget() const { return device_budget_; }   // 0: none
  const std::string& settings() const { return settings_; }      // config.json
  double done_share() const;
  /// Estimates the remaining time from the mean of the last 300 steps, if the run is active.
  std::optional<double> seconds_left() const;
  double tokens_per_second() const;  // mean of the same steps
  /// Returns summary.json's object or, until it exists, the summary of the records so far.
  std::string summary_json() const;

 private:
  struct Stamp {
    std::int64_t seconds = -1, nanoseconds = 0, bytes = 0;
    bool operator==(const Stamp&) const = default;
  };
  static Stamp stamp_of(const std::string& path);
  bool read_config();
  bool read_summary();
  void forget_records();
  void add(const StepRecord& record);
  std::string state_now() const;

  std::string name_;
  RunPaths paths_;
  MetricsTail tail_;
  Stamp config_stamp_, summary_stamp_;
  std::string settings_, summary_text_, state_, command_;
  std::string end_;         // how the run ended, from summary.json
  bool is_locked_ = false;  // whether a process of this machine has the lock
  std::int64_t planned_steps_ = 0;
  std::size_t device_budget_ = 0;
  StepRecord last_;
  ReportContent content_;
  RunSummary summary_, given_;  // given_: values from other files than the records
  double mean_seconds_ = 0, mean_overhead_ = 0, mean_tokens_ = 0;
  std::int64_t averaged_steps_ = 0;  // number of steps in these means
};

/// A run's folder, or a folder with runs up to three levels deep, as made by `hybrid compare`.
class WatchedFolder {
 public:
  /// Throws MissingInput if the path contains no run.
  explicit WatchedFolder(const std::filesystem::path& path);
  bool is_run() const { return is_run_; }
  const std::string& name() const { return name_; }
  /// Searches for new runs at intervals. The caller must refresh each run.
  void refresh();
  /// Returns the runs, sorted by name. Runs are kept even if their folders disappear.
  const std::vector<std::unique_ptr<WatchedRun>>& runs() const { return runs_; }

 private:
  void find_runs(const std::filesystem::path& folder, int depth);
  std::filesystem::path path_;
  std::string name_;
  bool is_run_ = false;
  std::vector<std::unique_ptr<WatchedRun>> runs_;
  Clock::time_point last_scan_{};
};

}  // namespace hybrid_trainer
