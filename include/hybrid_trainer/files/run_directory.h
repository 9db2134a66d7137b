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
  /// Returns the folder of TensorBoard's event file.
  std::string tensorboard() const { return root + "/tensorboard"; }
  std::string report() const { return root + "/report.html"; }
  /// Returns the file with the model's answers to prompts before and after the run.
  std::string answers() const { return root + "/answers.json"; }
  /// Returns the file with the report of the latest OutOfMemory that ended the run.
  std::string shortage() const { return root + "/oom.json"; }
  std::string checkpoints() const { return root + "/checkpoints"; }
  /// Returns the folder with the algorithms selected for the run's products on CUDA devices.
  std::string algorithms() const { return root + "/algorithms"; }
  std::string lock() const { return root + "/.lock"; }
  /// Returns true if the folder contains a config.json and traces of training.
  bool contains_run() const;
  /// Returns true if the folder contains only files that a run writes before its config.json,
  /// because the run is starting or was killed at its start.
  bool contains_start() const;
};

/// Returns the id, in digits, of the process that last locked a run; "" if the file lacks it.
std::string process_of_lock(const std::string& lock);
/// Returns whether the lock's last process has ended; false if unknown, as on another machine.
bool holder_has_exited(const std::string& lock);

/// Returns the paths of an existing run, for reading. Throws MissingInput if there is none.
RunPaths existing_run(const std::string& root);

enum class RunMode { kNew, kResume };

/// A run's folder, created if missing, and locked by this object. If nothing was written into it,
/// the destructor removes a new folder and leaves an existing one empty. Move-only.
class RunDirectory {
 public:
  /// Throws InUse, which names the process that has the lock. Throws CannotCreate if the folder
  /// contains files that are not a run's, if it cannot be created, or if it contains a run and
  /// `mode` is kNew; the message then names --resume. kResume creates an absent or empty folder.
  RunDirectory(const std::string& root, RunMode mode);
  RunDirectory(RunDirectory&&) noexcept = default;
  ~RunDirectory();
  const RunPaths& paths() const { return paths_; }
  /// Returns whether the folder already contained a run.
  bool resumes() const { return resumes_; }

 private:
  RunPaths paths_;
  bool is_new_ = false;  // whether the folder was created
  FileDescriptor lock_;
  bool resumes_ = false;
};

}  // namespace hybrid_trainer
