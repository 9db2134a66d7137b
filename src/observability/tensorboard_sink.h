#pragma once

#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer {

/// Returns the CRC-32C (Castagnoli) of the bytes, as used in iSCSI, ext4 and TensorBoard's files.
std::uint32_t crc32c(std::string_view bytes);

class TensorBoardEvents;

/// Writes the records of metrics.jsonl to one event file in a folder for TensorBoard. Tags:
/// loss/train, loss/validation, loss/validation_of_average, loss/predicted, learning_rate,
/// gradient_norm, tokens_per_second, memory/device_peak_bytes, memory/host_bytes, phase (0 Warmup,
/// 1 Full, 2 Predict, 3 Correct), predictions/kept_fraction, predictions/confidence, cost. Text
/// tags: decisions and configuration. Omits absent and non-finite numbers.
class TensorBoardSink {
 public:
  /// Creates the folder and begins a file in it. `metrics` is the run's metrics.jsonl, and
  /// `settings` its configuration as text. Throws IoError.
  TensorBoardSink(std::filesystem::path folder, std::filesystem::path metrics,
                  std::string settings);
  ~TensorBoardSink();
  /// Begins a new file with the current records of metrics.jsonl, and removes all steps from the
  /// earlier files. A running TensorBoard then discards the data that it has read. Throws IoError.
  void rewrite_file();
  /// Throws IoError for an incomplete write; the file then ends with the previous record.
  void write(const StepRecord& record);

 private:
  std::filesystem::path folder_, metrics_, path_;
  std::string settings_;
  FileDescriptor file_;
  std::unique_ptr<TensorBoardEvents> events_;
};

/// Writes a run's records to a folder for TensorBoard, and returns their number. Throws
/// MissingInput, IoError, and CannotCreate if the folder already contains event files.
std::int64_t write_tensorboard(const std::filesystem::path& folder,
                               const std::filesystem::path& metrics, const std::string& settings);

}  // namespace hybrid_trainer
