#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>

#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer {

/// Follows a metrics.jsonl while another process writes it: each call reads only what is new.
class MetricsTail {
 public:
  enum class Change { kNone, kMore, kAnew };

  explicit MetricsTail(std::filesystem::path path) : path_(std::move(path)) {}
  /// Visits each complete record that has come since the last call. If the file was
  /// shortened, replaced or written over, as by a run that resumes or goes back, it first calls
  /// `anew`, and then visits the records from the first. An absent file has none. Throws IoError, and
  /// DataError for a line of more than 8 MiB.
  Change read(const std::function<void()>& anew,
              const std::function<void(const StepRecord&)>& visit);
  /// Where the line ends that was read last.
  std::int64_t offset() const { return offset_; }

 private:
  bool has_same_past(int file) const;
  std::filesystem::path path_;
  std::int64_t offset_ = 0;  // behind the last complete line
  std::string last_line_;    // the bytes before the offset
  std::uint64_t inode_ = 0;  // when it was read last
  std::int64_t size_ = -1;
  std::timespec modified_{};
};

}  // namespace hybrid_trainer
