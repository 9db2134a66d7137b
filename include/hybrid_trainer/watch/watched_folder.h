#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/watch/watched_run.h"

namespace hybrid_trainer {

/// A run's folder, or a folder of runs, as `hybrid compare` makes one: up to three levels deep.
class WatchedFolder {
 public:
  /// Throws MissingInput where the path holds no run.
  explicit WatchedFolder(const std::filesystem::path& path);
  /// Whether the path itself is a run.
  bool is_run() const { return is_run_; }
  const std::string& name() const { return name_; }
  /// Now and then looks for new runs. The runs themselves are refreshed by the caller.
  void refresh();
  /// In the order of their names. Runs stay, also if their folders go.
  const std::vector<std::unique_ptr<WatchedRun>>& runs() const { return runs_; }

 private:
  void find_runs(const std::filesystem::path& folder, int depth);
  std::filesystem::path path_;
  std::string name_;
  bool is_run_ = false;
  std::vector<std::unique_ptr<WatchedRun>> runs_;
  Clock::time_point looked_{};
};

}  // namespace hybrid_trainer
