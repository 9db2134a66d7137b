#include "hybrid_trainer/observability/jsonl_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/folder.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/observability/metrics_tail.h"
#include "src/observability/step_record_json.h"

namespace hybrid_trainer {
namespace {

/// Visits complete lines that are records, with the offset after each.
template <class Visit>
void visit_records(const std::filesystem::path& path, const Visit& visit) {
  const InputFile is_there(path);
  MetricsTail tail(path);
  tail.read([] {}, [&](const StepRecord& record) { visit(record, tail.offset()); });
}

[[noreturn]] void throw_not_durable(const std::filesystem::path& path) {
  throw IoError(concat("cannot make ", path.string(), " durable: ", std::strerror(errno)));
}

}  // namespace

JsonlSink::JsonlSink(std::filesystem::path path)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (file_.number() < 0) {
    throw CannotCreate(
        concat("cannot open ", path_.string(), " to append: ", std::strerror(errno)));
  }
}

void JsonlSink::truncate_after(std::int64_t step) {
  std::int64_t kept = 0;
  bool is_later = false;
  visit_records(path_, [&](const StepRecord& record, std::int64_t end) {
    is_later = is_later || record.step > step;
    if (!is_later) kept = end;
  });
  if (::ftruncate(file_.number(), kept) != 0) {
    throw IoError(concat("cannot shorten ", path_.string(), ": ", std::strerror(errno)));
  }
}

void JsonlSink::write(const StepRecord& record) {
  const std::string line = to_json_line(record);
  const off_t before = ::lseek(file_.number(), 0, SEEK_END);
  const ssize_t written = ::write(file_.number(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return;
  const std::string why = written < 0 ? std::strerror(errno) : "the disk is full";
  if (written > 0 && before >= 0 && ::ftruncate(file_.number(), before) != 0) {
    throw IoError(concat("cannot write ", path_.string(), ": ", why, "; its last line is torn"));
  }
  throw IoError(concat("cannot write step ", record.step, " to ", path_.string(), ": ", why,
                       "; free some space and go on with --resume"));
}

void JsonlSink::sync() {
  if (::fsync(file_.number()) != 0) throw_not_durable(path_);
  if (name_is_durable_) return;
  sync_folder(std::filesystem::absolute(path_).parent_path());
  name_is_durable_ = true;
}

void for_each_record(const std::filesystem::path& path,
                     const std::function<void(const StepRecord&)>& visit) {
  visit_records(path, [&](const StepRecord& record, std::int64_t) { visit(record); });
}

}  // namespace hybrid_trainer
