#include "hybrid_trainer/observability/tensorboard_sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/folder.h"
#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/observability/jsonl_sink.h"
#include "src/observability/tensorboard_events.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNameStart = "events.out.tfevents.";
constexpr std::size_t kBytesAtOnce = std::size_t{1} << 20;
/// A TensorBoard that reads a file waits for ever if the file goes, so it stays a while, without steps.
constexpr double kSecondsOfCutFiles = 600;

double now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

/// An event file of a run of this program.
struct EventFile {
  fs::path path;
  EventFileStart start;
  std::int64_t made_at = 0;  // by its name, in seconds
};

bool is_event_file(const fs::path& path) {
  return path.filename().string().find("tfevents") != std::string::npos;
}

/// Those that this program wrote.
std::vector<EventFile> event_files_in(const fs::path& folder) {
  std::vector<EventFile> files;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kNameStart)) continue;
    std::string start(256, '\0');
    std::ifstream in(entry.path(), std::ios::binary);
    in.read(start.data(), static_cast<std::streamsize>(start.size()));
    start.resize(static_cast<std::size_t>(in.gcount()));
    const auto found = start_of_events(start);
    if (!found) continue;
    std::uint32_t made_at = 0;  // 0, too, if the name has no such number
    std::from_chars(name.data() + std::strlen(kNameStart), name.data() + name.size(), made_at);
    files.push_back({entry.path(), *found, made_at});
  }
  return files;
}

/// Takes all steps out of a file; later it goes itself. Throws IoError.
void cut(const EventFile& file) {
  struct stat found {};
  if (::stat(file.path.c_str(), &found) != 0) return;
  const bool is_cut = found.st_size == static_cast<off_t>(file.start.bytes);
  if (is_cut && now() - static_cast<double>(found.st_mtim.tv_sec) > kSecondsOfCutFiles) {
    fs::remove(file.path);
  } else if (!is_cut && ::truncate(file.path.c_str(), static_cast<off_t>(file.start.bytes)) != 0) {
    throw IoError(system_problem(file.path, "cannot take its steps out"));
  }
}

/// Of a run without event files: by its last record.
double begin_by_records(const fs::path& metrics) {
  double seconds = 0;
  std::int64_t records = 0;
  for_each_record(metrics, [&](const StepRecord& record) {
    if (std::isfinite(record.seconds)) seconds += record.seconds;
    ++records;
  });
  struct stat found {};
  if (records == 0 || ::stat(metrics.c_str(), &found) != 0) return now();
  return static_cast<double>(found.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(found.st_mtim.tv_nsec) - seconds;
}

/// A name after those of `others` in the alphabet, which is the order that TensorBoard reads in.
std::string name_after(const std::vector<EventFile>& others) {
  auto seconds = static_cast<std::int64_t>(now());
  for (const EventFile& other : others) seconds = std::max(seconds, other.made_at + 1);
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0 || host[0] == 0) std::strcpy(host, "localhost");
  return concat(kNameStart, seconds, ".", host, ".", ::getpid(), ".0");
}

/// Replaces `path` by the events of all records; returns their number.
std::int64_t write_events(const fs::path& path, TensorBoardEvents& events, const fs::path& metrics,
                          const std::string& settings) {
  std::int64_t records = 0;
  replace_file(path, [&](OutputFile& file) {
    std::string text = events.preface(settings);
    for_each_record(metrics, [&](const StepRecord& record) {
      text += events.of(record);
      ++records;
      if (text.size() < kBytesAtOnce) return;
      file.write(text);
      text.clear();
    });
    file.write(text);
  });
  return records;
}

}  // namespace

TensorBoardSink::TensorBoardSink(fs::path folder, fs::path metrics, std::string settings)
    : folder_(std::move(folder)), metrics_(std::move(metrics)), settings_(std::move(settings)) {
  begin_anew();
}

TensorBoardSink::~TensorBoardSink() = default;

void TensorBoardSink::begin_anew() {
  make_folders(folder_);
  const std::vector<EventFile> before = event_files_in(folder_);
  const double begin = before.empty() ? begin_by_records(metrics_) : before.front().start.begin;
  events_ = std::make_unique<TensorBoardEvents>(begin);
  path_ = folder_ / name_after(before);
  write_events(path_, *events_, metrics_, settings_);
  file_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (file_.number() < 0) throw IoError(system_problem(path_, "cannot open it to append"));
  for (const EventFile& file : before) cut(file);
}

void TensorBoardSink::write(const StepRecord& record) {
  const std::string event = events_->of(record);
  const off_t before = ::lseek(file_.number(), 0, SEEK_END);
  const ssize_t written = ::write(file_.number(), event.data(), event.size());
  if (written == static_cast<ssize_t>(event.size())) return;
  if (written >= 0) errno = ENOSPC;
  const std::string problem = system_problem(path_, "writing failed");
  if (written > 0 && before >= 0 && ::ftruncate(file_.number(), before) != 0)
    throw IoError(problem + "; its last event is torn");
  throw IoError(problem);
}

std::int64_t write_tensorboard(const fs::path& folder, const fs::path& metrics,
                               const std::string& settings) {
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent)) {
    if (is_event_file(entry.path()))
      throw CannotCreate(
          concat(folder.string(), ": holds event files already (", entry.path().filename().string(),
                 "), beside which steps would occur twice; give an empty or a new folder"));
  }
  TensorBoardEvents events(begin_by_records(metrics));
  make_folders(folder);
  return write_events(folder / name_after({}), events, metrics, settings);
}

}  // namespace hybrid_trainer
