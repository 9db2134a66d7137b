#pragma once

#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer {

/// CRC-32C (Castagnoli) of the bytes, as iSCSI, ext4 and TensorBoard's files have it.
std::uint32_t crc32c(std::string_view bytes);

class TensorBoardEvents;

/// A folder that TensorBoard reads, with a run's records in one event file, as metrics.jsonl holds them.
/// Tags: loss/train, loss/validation, loss/validation_of_average, loss/predicted, learning_rate,
/// gradient_norm, tokens_per_second, memory/device_peak_bytes, memory/host_bytes, phase (0 Warmup, 1
/// Full, 2 Predict, 3 Correct), predictions/kept_fraction, predictions/confidence, cost; as text
/// decisions (each record's event) and configuration. A number that is absent or not finite has no
/// event.
class TensorBoardSink : public MetricSink {
 public:
  /// Makes the folder and begins a file in it. `metrics`: the run's metrics.jsonl; `settings`: its
  /// configuration as text. Throws IoError.
  TensorBoardSink(std::filesystem::path folder, std::filesystem::path metrics,
                  std::string settings);
  ~TensorBoardSink() override;
  /// Begins another file with the records that metrics.jsonl holds now, and takes all steps out of the
  /// ones before. A TensorBoard that is reading drops what it has read. Throws IoError.
  void begin_anew();
  /// One write(2). Throws IoError; the file then ends with the record before.
  void write(const StepRecord& record) override;
  void tell(const std::string&) override {}
  void finish() override {}

 private:
  std::filesystem::path folder_, metrics_, path_;
  std::string settings_;
  FileDescriptor file_;
  std::unique_ptr<TensorBoardEvents> events_;
};

/// Writes a run's records into a folder that TensorBoard reads, and returns their number. Throws
/// CannotCreate where the folder holds event files already, MissingInput, IoError.
std::int64_t write_tensorboard(const std::filesystem::path& folder,
                               const std::filesystem::path& metrics, const std::string& settings);

}  // namespace hybrid_trainer
