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
  std::string data() const { return root + "/data.json"; }  // for tasks with RunData
  /// Folder of TensorBoard's event file.
  std::string tensorboard() const { return root + "/tensorboard"; }
  std::string report() const { return root + "/report.html"; }
  /// The model's answers to prompts before and after the run.
  std::string answers() const { return root + "/answers.json"; }
  /// Report of the latest OutOfMemory that ended the run.
  std::string shortage() const { return root + "/oom.json"; }
  std::string checkpoints() const { return root + "/checkpoints"; }
  /// Folder of the algorithms selected for the run's products on CUDA devices.
  std::string algorithms() const { return root + "/algorithms"; }
  std::string lock() const { return root + "/.lock"; }
  /// Returns true if the folder contains a config.json and traces of training.
  bool contains_run() const;
  /// Returns true if the folder contains only files that a run writes before its config.json: the
  /// run is starting, or was killed then.
  bool contains_start() const;
};

/// Returns the process id, in digits, that last took a run's lock; "" if the file does not say.
std::string process_of_lock(const std::string& lock);
/// Returns whether that process has certainly ended; false if unknown, as on another machine.
bool holder_has_exited(const std::string& lock);

/// Returns the paths of an existing run, for reading. Throws MissingInput if there is none.
RunPaths existing_run(const std::string& root);

enum class RunMode { kNew, kResume };

/// A run's folder, created if missing and locked during the object's lifetime. A new or empty
/// folder into which nothing was written is removed or left empty again. Move-only.
class RunDirectory {
 public:
  /// Throws InUse naming the process that has the lock; CannotCreate if the folder contains a run
  /// and mode is kNew (the message names --resume), contains other files, or cannot be created.
  /// kResume creates an absent or empty folder.
  RunDirectory(const std::string& root, RunMode mode);
  RunDirectory(RunDirectory&&) noexcept = default;
  ~RunDirectory();
  const RunPaths& paths() const { return paths_; }
  /// Returns whether the folder already contained a run.
  bool resumes() const { return resumes_; }

 private:
  RunPaths paths_;
  bool is_new_ = false;  // the folder
  FileDescriptor lock_;
  bool resumes_ = false;
};

}  // namespace hybrid_trainer
