#pragma once

#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

/// Paths within a run's folder.
struct RunPaths {
  std::string root;
  std::string config() const { return root + "/config.json"; }
  std::string metrics() const { return root + "/metrics.jsonl"; }
  std::string timeline() const { return root + "/memory_timeline.json"; }
  std::string summary() const { return root + "/summary.json"; }
  std::string data() const { return root + "/data.json"; }  // of tasks that know RunData
  /// Folder of the event file that TensorBoard reads.
  std::string tensorboard() const { return root + "/tensorboard"; }
  std::string report() const { return root + "/report.html"; }
  /// What the model answers to prompts before and after the run.
  std::string answers() const { return root + "/answers.json"; }
  /// Report of the OutOfMemory that ended the run last.
  std::string shortage() const { return root + "/oom.json"; }
  std::string checkpoints() const { return root + "/checkpoints"; }
  /// Folder of the algorithms that the run's products have on CUDA devices.
  std::string algorithms() const { return root + "/algorithms"; }
  std::string lock() const { return root + "/.lock"; }
  /// True if the folder holds a config.json and a trace of training.
  bool hold_a_run() const;
  /// True if the folder holds what a run writes before its config.json, and nothing else: it is
  /// starting, or was killed then.
  bool hold_a_start() const;
};

/// The process, in digits, that took a run's lock last; "" where the file does not say.
std::string process_of_lock(const std::string& lock);
/// Whether that process has certainly ended; false where it cannot be known, as of another machine's.
bool holder_has_ended(const std::string& lock);

/// Paths of a run that is only read. Throws MissingInput where the folder holds no run.
RunPaths existing_run(const std::string& root);

enum class RunMode { kNew, kResume };

/// A run's folder, created if missing and locked while the object exists. Where nothing was written
/// into an empty or a new one, nothing is left of it. Move-only.
class RunDirectory {
 public:
  /// Throws InUse, which names the process that holds the lock; CannotCreate if the folder holds a
  /// run and mode is kNew (the message names --resume), holds files that are not a run's, or cannot
  /// be created. kResume creates an absent or empty folder.
  RunDirectory(const std::string& root, RunMode mode);
  RunDirectory(RunDirectory&&) noexcept = default;
  ~RunDirectory();
  const RunPaths& paths() const { return paths_; }
  /// True if the folder already held a run.
  bool resumes() const { return resumes_; }

 private:
  RunPaths paths_;
  bool is_new_ = false;  // the folder
  FileDescriptor lock_;
  bool resumes_ = false;
};

}  // namespace hybrid_trainer
