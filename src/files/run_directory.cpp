#include "hybrid_trainer/files/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <iomanip>

#include "hybrid_trainer/core/error.h"
#include "src/files/output_file.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;
namespace {

enum class Content { kNothing, kRun, kOther };

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Returns whether a file of this name stores examples from standard input or names their folder.
bool is_kept_input(std::string name) {
  if (name.ends_with(".folder")) name.resize(name.size() - std::size(".folder") + 1);
  return name == "examples.jsonl" || name == "examples.json" || name == "examples.csv" ||
         name == "examples.parquet";
}

/// Returns whether the path may be left from a run that was killed before its first step. Files
/// that a user may also have count only next to a run's lock.
bool is_startup_file(const fs::path& path, bool is_locked) {
  const std::string name = path.filename().string();
  std::error_code ignored;
  if (name == "metrics.jsonl") return fs::file_size(path, ignored) == 0;
  if (name == "base.json" || name == "base_config.json" || name == "answers.json" ||
      name == "reference.bin")
    return is_locked;
  return name == ".lock" || name == "data.json" || name == "tokenizer" || name == "oom.json" ||
         name == "ranks" || name == "algorithms" || name == "log.txt" || is_kept_input(name) ||
         name.rfind(".tmp-", 0) == 0;
}

/// Returns the name of the first file in a folder other than such leftovers, or "".
std::string first_file(const std::string& root) {
  std::error_code absent;
  const bool is_locked = exists(RunPaths{root}.lock());
  for (const auto& entry : fs::directory_iterator(root, absent)) {
    if (!is_startup_file(entry.path(), is_locked)) return entry.path().filename().string();
  }
  return "";
}

Content content_of(const RunPaths& paths) {
  if (paths.contains_run()) return Content::kRun;
  return first_file(paths.root).empty() ? Content::kNothing : Content::kOther;
}

/// Contents of a lock file: the process id in decimal digits, and the process's temporary_mark().
struct LockHolder {
  std::string process, mark;
};

LockHolder holder_in(const std::string& lock) {
  LockHolder holder;
  std::ifstream(lock) >> std::setw(32) >> holder.process >> std::setw(256) >> holder.mark;
  const bool is_number =
      std::ranges::all_of(holder.process, [](unsigned char c) { return std::isdigit(c) != 0; });
  return is_number && holder.process.size() < 20 ? holder : LockHolder{};
}

bool make_folder(const RunPaths& paths) {
  const bool is_new = !exists(paths.root);
  make_folders(paths.root);
  if (!fs::is_directory(paths.root))
    throw CannotCreate(
        concat(paths.root, ": is a file, not a run; give --run an empty or a new folder"));
  if (content_of(paths) == Content::kOther)
    throw CannotCreate(concat(paths.root, ": contains other files (", first_file(paths.root),
                              "), not a run; give --run an empty or a new folder"));
  return is_new;
}

/// Returns whether the open lock is still in the folder: the previous process may have removed it.
bool is_in_place(const FileDescriptor& lock, const std::string& path) {
  struct stat opened {
  }, there{};
  return ::fstat(lock.number(), &opened) == 0 && ::stat(path.c_str(), &there) == 0 &&
         opened.st_ino == there.st_ino && opened.st_dev == there.st_dev;
}

FileDescriptor take_lock(const RunPaths& paths) {
  const std::string path = paths.lock();
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (file.number() < 0) throw CannotCreate(system_problem(path, "cannot create the lock"));
  if (::flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) throw IoError(system_problem(path, "cannot lock"));
    const std::string process = holder_in(path).process;
    throw InUse(concat(paths.root, ": in use by the process ",
                       process.empty() ? "that just started" : process,
                       "; wait until it ends or stop it"));
  }
  if (!is_in_place(file, path)) {
    make_folder(paths);
    return take_lock(paths);
  }
  const std::string own = concat(::getpid(), " ", temporary_mark(), "\n");
  const bool written =
      ::ftruncate(file.number(), 0) == 0 &&
      ::pwrite(file.number(), own.data(), own.size(), 0) == static_cast<ssize_t>(own.size());
  if (!written) throw IoError(system_problem(path, "writing failed"));
  return file;
}

}  // namespace

bool RunPaths::contains_run() const {
  return exists(config()) && (exists(lock()) || exists(metrics()) || exists(checkpoints()));
}

bool RunPaths::contains_start() const {
  return !contains_run() && exists(lock()) && first_file(root).empty();
}

std::string process_of_lock(const std::string& lock) { return holder_in(lock).process; }

bool holder_has_exited(const std::string& lock) { return creator_has_exited(holder_in(lock).mark); }

RunPaths existing_run(const std::string& root) {
  RunPaths paths{root};
  if (paths.contains_start())
    throw MissingInput(concat(root,
                              ": contains a run that is starting, or that ended before its first "
                              "step; repeat its complete command with this folder"));
  if (!paths.contains_run()) {
    const bool is_present = exists(root);
    throw MissingInput(
        concat(root, is_present ? ": does not contain a run (no config.json)" : ": does not exist",
               "; want a folder made by `hybrid train --run`"));
  }
  return paths;
}

RunDirectory::RunDirectory(const std::string& root, RunMode mode)
    : paths_{root}, is_new_(make_folder(paths_)) {
  lock_ = take_lock(paths_);
  resumes_ = content_of(paths_) == Content::kRun;
  if (resumes_ && mode == RunMode::kNew)
    throw CannotCreate(
        root +
        ": contains a run already; continue it with --resume, or choose another folder for --run");
}

RunDirectory::~RunDirectory() {
  if (lock_.number() < 0) return;  // moved from, or never locked
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(paths_.root, absent)) {
    if (entry.path() != fs::path(paths_.lock())) return;
  }
  fs::remove(paths_.lock(), absent);
  if (is_new_) fs::remove(paths_.root, absent);
}

}  // namespace hybrid_trainer
