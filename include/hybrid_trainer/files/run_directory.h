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
  /// Returns whether the folder contains a config.json and other files of a run.
  bool contains_run() const;
  /// Returns whether the folder contains only files that a run writes before its config.json.
  bool contains_start() const;
};

/// Returns the process id of the last process that locked a run, or "" if there is none.
std::string process_of_lock(const std::string& lock);
/// Returns whether the lock's last process has ended; false if unknown, as on another machine.
bool holder_has_exited(const std::string& lock);

/// Returns the paths of an existing run, for reading. Throws MissingInput if there is none.
RunPaths existing_run(const std::string& root);

enum class RunMode { kNew, kResume };

/// Creates a run's folder if necessary and locks it. If no file was written into the folder, the
/// destructor removes it, unless the folder existed before. Move-only.
class RunDirectory {
 public:
  /// Throws InUse, naming the process with the lock. Throws CannotCreate if the folder contains
  /// other files or cannot be created, or if it contains a run and `mode` is kNew. kResume also
  /// accepts an absent or empty folder.
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
