#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "hybrid_trainer/files/file_descriptor.h"
#include "hybrid_trainer/observability/metric_sink.h"

namespace hybrid_trainer {

/// metrics.jsonl: one JSON object per step, each one write(2) to a file opened with O_APPEND. Keys:
/// step, phase, loss, learning_rate, gradient_norm, tokens, effective_batch, micro_batches, seconds,
/// tokens_per_second, live_bytes{kind}, peak_bytes{kind}, peak_total_bytes, border_peak_bytes,
/// memory_status, memory_share, memory_risk, memory_leaks, recommended_micro_batch (0 without a
/// budget), host_bytes, predicted_loss, confidence,
/// decision ("accepted", "shrunk", "reverted"), kept_fraction, cost (in Full steps), event, warns
/// (whether the event tells of something that went wrong), validation_loss. What is absent or not
/// finite is null; a number that is not finite is also named in the event.
class JsonlSink : public MetricSink {
 public:
  /// Opens the file to append, or makes it. Throws CannotCreate.
  explicit JsonlSink(std::filesystem::path path);
  /// Drops records of later steps and a truncated or damaged end, so that a resumed run writes no
  /// step twice. What follows a damaged line stays.
  void truncate_after(std::int64_t step);
  /// Throws IoError if the line cannot be written whole; the file then ends with the record before.
  void write(const StepRecord& record) override;
  /// Makes every record written so far durable against power cuts. Throws IoError.
  void sync();
  void tell(const std::string&) override {}
  void finish() override {}

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  bool name_is_durable_ = false;
};

/// The JSON object of a record, as a line of metrics.jsonl has it.
std::string json_of_record(const StepRecord& record);

/// Calls `visit` with each record of a metrics.jsonl in order; damaged lines are passed over. Peaks
/// by kind and totals are read back; `cached` and `fresh_total` are not in the file. Throws
/// MissingInput.
void for_each_record(const std::filesystem::path& path,
                     const std::function<void(const StepRecord&)>& visit);

}  // namespace hybrid_trainer
