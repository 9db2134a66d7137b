#include "hybrid_trainer/watch/watched_folder.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "src/watch/run_activity.h"

namespace hybrid_trainer {
namespace fs = std::filesystem;
namespace {

constexpr int kDeepest = 3;
constexpr double kSecondsBetweenLooks = 5;
constexpr std::size_t kMostRuns = 500;

/// The folder's own name, also of "." and of "runs/mine/".
std::string name_of_folder(const fs::path& path) {
  const fs::path clean = fs::absolute(path).lexically_normal();
  return (clean.has_filename() ? clean : clean.parent_path()).filename().string();
}

/// A run, or one that is starting: a process of this machine holds its lock.
bool is_watchable(const RunPaths& run) {
  return run.hold_a_run() || (run.hold_a_start() && is_locked(run.lock()));
}

}  // namespace

WatchedFolder::WatchedFolder(const fs::path& path)
    : path_(path), name_(name_of_folder(path)), is_run_(is_watchable({path.string()})) {
  if (is_run_) {
    runs_.push_back(std::make_unique<WatchedRun>(path_, name_));
    return;
  }
  refresh();
  if (!runs_.empty()) return;
  std::error_code ignored;
  const char* const why = !fs::exists(path, ignored)         ? ": does not exist"
                          : !fs::is_directory(path, ignored) ? ": is no folder"
                          : RunPaths{path.string()}.hold_a_start()
                              ? ": holds a run that ended before its first step"
                              : ": holds no run";
  throw MissingInput(concat(path.string(), why,
                            "; want a folder that `hybrid train --run` or `hybrid finetune --run` "
                            "made, or a folder of such folders"));
}

/// Whether an entry is a link to a folder that is found by its own name.
static bool is_link_inside(const fs::directory_entry& entry, const fs::path& watched) {
  std::error_code ignored;
  if (!entry.is_symlink(ignored)) return false;
  const fs::path inside = fs::weakly_canonical(entry.path(), ignored)
                              .lexically_relative(fs::weakly_canonical(watched, ignored));
  return !inside.empty() && *inside.begin() != "..";
}

void WatchedFolder::refresh() {
  const bool is_first = looked_ == Clock::time_point{};
  if (is_run_ || (!is_first && seconds_since(looked_) < kSecondsBetweenLooks)) return;
  looked_ = Clock::now();
  find_runs(path_, 1);
  std::ranges::sort(runs_, {}, [](const auto& run) { return run->name(); });
}

void WatchedFolder::find_runs(const fs::path& folder, int depth) {
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent)) {
    std::error_code ignored;
    if (runs_.size() == kMostRuns) return;
    if (!entry.is_directory(ignored) || is_link_inside(entry, path_)) continue;
    const std::string name = entry.path().lexically_relative(path_).generic_string();
    if (!is_watchable({entry.path().string()})) {
      if (depth < kDeepest) find_runs(entry.path(), depth + 1);
    } else if (std::ranges::none_of(runs_, [&](const auto& run) { return run->name() == name; })) {
      runs_.push_back(std::make_unique<WatchedRun>(entry.path(), name));
    }
  }
}

}  // namespace hybrid_trainer
