#include "src/observability/jsonl_sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

#include "hybrid_trainer/core/error.h"
#include "src/files/output_file.h"
#include "src/observability/step_record_json.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kMaxAtOnce = std::size_t{1} << 20;
constexpr std::size_t kMaxLine = std::size_t{8} << 20;  // maximum length of a record's line

std::string read_some(int file, std::size_t bytes, std::int64_t offset,
                      const std::filesystem::path& path) {
  std::string text(bytes, '\0');
  ssize_t got = 0;
  do {
    got = ::pread(file, text.data(), bytes, offset);
  } while (got < 0 && errno == EINTR);
  if (got < 0) throw IoError(system_problem(path, "reading failed"));
  text.resize(static_cast<std::size_t>(got));
  return text;
}

/// Visits the complete lines that are records, each with the offset after its end.
template <class Visit>
void visit_records(const std::filesystem::path& path, const Visit& visit) {
  const InputFile is_present(path);
  MetricsTail tail(path);
  tail.read([] {}, [&](const StepRecord& record) { visit(record, tail.offset()); });
}

}  // namespace

bool MetricsTail::has_same_past(int file) const {
  const auto length = static_cast<std::int64_t>(last_line_.size());
  return read_some(file, last_line_.size(), offset_ - length, path_) == last_line_;
}

MetricsTail::Change MetricsTail::read(const std::function<void()>& on_reset,
                                      const std::function<void(const StepRecord&)>& visit) {
  struct stat found {};
  const FileDescriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const bool is_present =
      file.number() >= 0 && ::fstat(file.number(), &found) == 0 && S_ISREG(found.st_mode);
  if (is_present && found.st_ino == inode_ && found.st_size == size_ &&
      found.st_mtim.tv_sec == modified_.tv_sec && found.st_mtim.tv_nsec == modified_.tv_nsec)
    return Change::kNone;
  Change change = Change::kNone;
  if (offset_ > 0 && (!is_present || found.st_ino != inode_ || found.st_size < offset_ ||
                      !has_same_past(file.number()))) {
    offset_ = 0;
    last_line_.clear();
    change = Change::kReset;
    on_reset();
  }
  inode_ = found.st_ino;
  size_ = is_present ? found.st_size : -1;
  modified_ = found.st_mtim;
  if (!is_present) return change;
  std::string text;  // contents from the offset on
  for (;;) {
    const std::string more = read_some(file.number(), kMaxAtOnce,
                                       offset_ + static_cast<std::int64_t>(text.size()), path_);
    if (more.empty()) break;
    text += more;
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      const std::string_view line = std::string_view(text).substr(begin, end - begin);
      last_line_.assign(line).push_back('\n');
      offset_ += std::ssize(last_line_);
      if (const auto record = parse_json_line(line)) {
        visit(*record);
        if (change == Change::kNone) change = Change::kMore;
      }
    }
    text.erase(0, begin);
    if (text.size() > kMaxLine)
      throw DataError(concat(path_.string(), ": a line of more than ", kMaxLine >> 20, " MiB"));
  }
  return change;
}

JsonlSink::JsonlSink(std::filesystem::path path)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (file_.number() < 0)
    throw CannotCreate(
        concat("cannot open ", path_.string(), " to append: ", std::strerror(errno)));
}

void JsonlSink::truncate_after(std::int64_t step) {
  std::int64_t kept = 0;
  bool is_later = false;
  visit_records(path_, [&](const StepRecord& record, std::int64_t end) {
    is_later = is_later || record.step > step;
    if (!is_later) kept = end;
  });
  if (::ftruncate(file_.number(), kept) != 0)
    throw IoError(concat("cannot shorten ", path_.string(), ": ", std::strerror(errno)));
}

void JsonlSink::write(const StepRecord& record) {
  const std::string line = to_json_line(record);
  const off_t before = ::lseek(file_.number(), 0, SEEK_END);
  const ssize_t written = ::write(file_.number(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return;
  const std::string why = written < 0 ? std::strerror(errno) : "the disk is full";
  if (written > 0 && before >= 0 && ::ftruncate(file_.number(), before) != 0)
    throw IoError(
        concat("cannot write ", path_.string(), ": ", why, "; its last line is incomplete"));
  throw IoError(concat("cannot write step ", record.step, " to ", path_.string(), ": ", why,
                       "; free some space and continue with --resume"));
}

void JsonlSink::sync() {
  if (::fsync(file_.number()) != 0)
    throw IoError(concat("cannot make ", path_.string(), " durable: ", std::strerror(errno)));
  if (name_is_durable_) return;
  sync_folder(std::filesystem::absolute(path_).parent_path());
  name_is_durable_ = true;
}

void for_each_record(const std::filesystem::path& path,
                     const std::function<void(const StepRecord&)>& visit) {
  visit_records(path, [&](const StepRecord& record, std::int64_t) { visit(record); });
}

}  // namespace hybrid_trainer
