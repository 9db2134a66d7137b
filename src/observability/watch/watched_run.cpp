#include "src/observability/watch/watched_run.h"

#include <sys/stat.h>
#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <iterator>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/core/messages.h"
#include "src/files/json.h"
#include "src/files/json_lookup.h"
#include "src/observability/step_record_json.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

namespace {

std::string content_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Returns whether a local process locks the run. Does not interfere with a starting trainer.
bool is_locked(const std::string& lock) {
  struct stat found {};
  if (::stat(lock.c_str(), &found) != 0) return false;
  std::ifstream locks("/proc/locks");
  const std::string inode = concat(":", found.st_ino, " ");
  for (std::string line; std::getline(locks, line);) {
    const bool is_whole = line.find("FLOCK") != std::string::npos &&
                          line.find("WRITE") != std::string::npos &&
                          line.find("->") == std::string::npos;  // marks a waiting process
    if (is_whole && line.find(inode) != std::string::npos) return true;
  }
  return false;
}

/// Returns the command line of the lock's owner, or "" if it has ended or runs on another machine.
std::string command_of_holder(const std::string& lock) {
  const std::string process = process_of_lock(lock);
  if (process.empty()) return "";
  const std::string words = content_of_file("/proc/" + process + "/cmdline");
  std::string text;
  for (std::size_t begin = 0, end = 0; (end = words.find('\0', begin)) != std::string::npos;
       begin = end + 1)
    text += (text.empty() ? "" : " ") + shell_word(words.substr(begin, end - begin));
  return text;
}

constexpr std::size_t kMaxBytes = std::size_t{1} << 24;  // limit of config.json and summary.json
/// A run on another machine, whose lock is not visible here, counts as running until this many
/// seconds after its last change. Unused if the lock's file names a local process.
constexpr double kStaleSeconds = 20;

/// Reads a JSON object from a file; empty if the file is absent, damaged or being written.
json::value object_in(const std::string& path, std::string& text) {
  try {
    text = read_file(path, kMaxBytes);
    json::value value = json::parse(text);
    if (value.is_object()) return value;
  } catch (const std::exception&) {
  }
  return json::object();
}

double seconds_since_change(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return 1e9;
  return std::difftime(std::time(nullptr), found.st_mtim.tv_sec);
}

constexpr int kDeepest = 3;
constexpr double kSecondsBetweenScans = 5;
constexpr std::size_t kMaxRuns = 500;

std::string name_of_folder(const fs::path& path) {
  const fs::path clean = fs::absolute(path).lexically_normal();
  return (clean.has_filename() ? clean : clean.parent_path()).filename().string();
}

/// Returns whether the folder contains a run, or one that a local process is starting.
bool is_watchable(const RunPaths& run) {
  return run.contains_run() || (run.contains_start() && is_locked(run.lock()));
}

}  // namespace

WatchedRun::WatchedRun(const std::filesystem::path& root, std::string name)
    : name_(std::move(name)), paths_{root.string()}, tail_(paths_.metrics()) {}

WatchedRun::Stamp WatchedRun::stamp_of(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return {};
  return {found.st_mtim.tv_sec, found.st_mtim.tv_nsec, found.st_size};
}

bool WatchedRun::read_config() {
  const Stamp stamp = stamp_of(paths_.config());
  if (stamp == config_stamp_) return false;
  config_stamp_ = stamp;
  const json::value config = object_in(paths_.config(), settings_);
  planned_steps_ = count_at(config, "/training/steps");
  const auto size = MemorySize::parse(text_at(config, "/memory/device_budget"));
  device_budget_ =
      size ? size->bytes : static_cast<std::size_t>(count_at(config, "/memory/device_budget"));
  given_.masked = text_at(config, "/objective").starts_with("masked");
  return true;
}

bool WatchedRun::read_summary() {
  const Stamp stamp = stamp_of(paths_.summary());
  if (stamp == summary_stamp_) return false;
  summary_stamp_ = stamp;
  const bool masked = given_.masked;
  given_ = {};
  summary_text_.clear();
  const json::value summary = object_in(paths_.summary(), summary_text_);
  summary_text_ = json_line(summary) + "\n";
  end_ = text_at(summary, "/end");
  given_.masked = masked;
  given_.version = text_at(summary, "/version");
  given_.command = text_at(summary, "/command");
  given_.parameters = count_at(summary, "/parameters");
  given_.predictions = prediction_counts(summary);
  for (const Phase phase : kAllPhases)
    given_.phase(phase).precision =
        text_at(summary, concat("/phases/", name_of(phase), "/precision"));
  return true;
}

void WatchedRun::forget_records() {
  content_ = {};
  summary_ = {};
  last_ = {};
  mean_seconds_ = mean_overhead_ = mean_tokens_ = 0;
  averaged_steps_ = 0;
}

void WatchedRun::add(const StepRecord& record) {
  last_ = record;
  content_.add(record);
  summary_.add(record);
  if (record.decision != Decision::kNone) {
    ++summary_.predictions.made;
    ++(record.decision == Decision::kAccepted ? summary_.predictions.accepted
       : record.decision == Decision::kShrunk ? summary_.predictions.shrunk
                                              : summary_.predictions.reverted);
  }
  averaged_steps_ = std::min(averaged_steps_ + 1, kStepsOfMean);
  const double weight = 1 / static_cast<double>(averaged_steps_);
  mean_seconds_ += weight * (record.seconds - mean_seconds_);
  mean_overhead_ += weight * (record.overhead_seconds - mean_overhead_);
  mean_tokens_ += weight * (static_cast<double>(record.tokens) - mean_tokens_);
}

std::string WatchedRun::state_now() const {
  if (!end_.empty()) return end_;
  const double patience = std::max(kStaleSeconds, 5 * mean_seconds_);
  const double silence =
      std::min(seconds_since_change(paths_.metrics()), seconds_since_change(paths_.config()));
  const bool may_be_elsewhere =
      command_.empty() && silence < patience && !holder_has_exited(paths_.lock());
  if (!is_locked_ && !may_be_elsewhere) return "killed";
  return has_steps() ? "running" : "waiting";
}

WatchedRun::Change WatchedRun::refresh(const Visit& visit) {
  bool is_changed = read_config();
  is_changed = read_summary() || is_changed;
  const MetricsTail::Change records = tail_.read([this] { forget_records(); },
                                                 [&](const StepRecord& record) {
                                                   add(record);
                                                   if (visit) visit(record);
                                                 });
  summary_.masked = given_.masked;
  summary_.version = given_.version;
  summary_.parameters = given_.parameters;
  if (!end_.empty()) summary_.predictions = given_.predictions;
  for (const Phase phase : kAllPhases)
    summary_.phase(phase).precision = given_.phase(phase).precision;
  summary_.effective_batch = last_.effective_batch;
  is_locked_ = end_.empty() && is_locked(paths_.lock());
  const std::string command = is_locked_ ? command_of_holder(paths_.lock()) : given_.command;
  if (!command.empty()) command_ = command;
  summary_.command = command_;
  const std::string state = state_now();
  is_changed = is_changed || state != state_;
  state_ = state;
  summary_.end = state;
  if (records == MetricsTail::Change::kReset) return Change::kReset;
  if (records == MetricsTail::Change::kMore) return Change::kMore;
  return is_changed ? Change::kState : Change::kNone;
}

double WatchedRun::done_share() const {
  if (planned_steps_ <= 0) return 0;
  return std::clamp(static_cast<double>(last_.step) / static_cast<double>(planned_steps_), 0., 1.);
}

std::optional<double> WatchedRun::seconds_left() const {
  if (state_ != "running" || planned_steps_ <= last_.step) return {};
  const double steps = static_cast<double>(planned_steps_) - static_cast<double>(last_.step);
  return (mean_seconds_ + mean_overhead_) * steps;
}

double WatchedRun::tokens_per_second() const {
  return mean_seconds_ > 0 ? mean_tokens_ / mean_seconds_ : 0;
}

std::string WatchedRun::summary_json() const {
  if (!end_.empty()) return summary_text_;
  json::object object = json::parse(to_json(summary_)).get_object();
  for (const char* unknown : {"parameters", "version"}) object.erase(unknown);
  return json_line(object) + "\n";
}

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
                          : !fs::is_directory(path, ignored) ? ": is not a folder"
                          : RunPaths{path.string()}.contains_start()
                              ? ": contains a run that ended before its first step"
                              : ": does not contain a run";
  throw MissingInput(concat(path.string(), why,
                            "; want a folder made by `hybrid train --run` or `hybrid finetune "
                            "--run`, or a folder of such folders"));
}

/// Returns whether an entry is a link to a folder that is also found by its own name.
static bool is_link_inside(const fs::directory_entry& entry, const fs::path& watched) {
  std::error_code ignored;
  if (!entry.is_symlink(ignored)) return false;
  const fs::path inside = fs::weakly_canonical(entry.path(), ignored)
                              .lexically_relative(fs::weakly_canonical(watched, ignored));
  return !inside.empty() && *inside.begin() != "..";
}

void WatchedFolder::refresh() {
  const bool is_first = last_scan_ == Clock::time_point{};
  if (is_run_ || (!is_first && seconds_since(last_scan_) < kSecondsBetweenScans)) return;
  last_scan_ = Clock::now();
  find_runs(path_, 1);
  std::ranges::sort(runs_, {}, [](const auto& run) { return run->name(); });
}

void WatchedFolder::find_runs(const fs::path& folder, int depth) {
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent)) {
    std::error_code ignored;
    if (runs_.size() == kMaxRuns) return;
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
