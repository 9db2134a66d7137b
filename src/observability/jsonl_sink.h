#pragma once

#include <functional>

#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer {

/// Follows a metrics.jsonl that another process is writing. Each call reads only new lines.
class MetricsTail {
 public:
  enum class Change { kNone, kMore, kReset };

  explicit MetricsTail(std::filesystem::path path) : path_(std::move(path)) {}
  /// Visits complete records added since the last call. If the file was shortened, replaced or
  /// overwritten, first calls `on_reset` and then visits all records. An absent file counts as
  /// empty. Throws IoError; DataError for a line of more than 8 MiB.
  Change read(const std::function<void()>& on_reset,
              const std::function<void(const StepRecord&)>& visit);
  std::int64_t offset() const { return offset_; }

 private:
  bool has_same_past(int file) const;
  std::filesystem::path path_;
  std::int64_t offset_ = 0;  // offset after the last complete line
  std::string last_line_;    // the bytes before the offset
  std::uint64_t inode_ = 0;  // inode at the last read
  std::int64_t size_ = -1;
  std::timespec modified_{};
};

/// Writes metrics.jsonl: one JSON object per step, each appended by one write(2). Keys: step,
/// phase, loss, learning_rate, gradient_norm, tokens, effective_batch, micro_batches, seconds,
/// tokens_per_second, live_bytes{kind}, peak_bytes{kind}, peak_total_bytes, phase_entry_peak_bytes,
/// memory_status, memory_share, memory_risk, memory_leaks, recommended_micro_batch (0 without a
/// budget), host_bytes, predicted_loss, confidence, decision ("accepted", "shrunk", "reverted"),
/// kept_fraction, cost (in Full steps), event, warns (if the event is a problem), validation_loss.
/// Absent and non-finite numbers are null; the event names the non-finite numbers.
class JsonlSink {
 public:
  explicit JsonlSink(std::filesystem::path path);
  /// Removes the records of later steps, and a truncated or damaged end, so that a resumed run does
  /// not write a step twice. Keeps records after a damaged line.
  void truncate_after(std::int64_t step);
  /// Throws IoError for an incomplete write; the file then ends with the previous record.
  void write(const StepRecord& record);
  /// Flushes all records to the disk, so that they survive a power failure. Throws IoError.
  void sync();

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  bool name_is_durable_ = false;
};

/// Returns the JSON object of a record, as a line of metrics.jsonl.
std::string json_of_record(const StepRecord& record);

/// Calls `visit` with each record of a metrics.jsonl in order. Skips damaged lines. Records include
/// peaks by kind and totals, but not `cached` and `fresh_total`. Throws MissingInput.
void for_each_record(const std::filesystem::path& path,
                     const std::function<void(const StepRecord&)>& visit);

}  // namespace hybrid_trainer
