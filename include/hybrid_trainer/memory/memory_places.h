#pragma once

#include <memory>
#include <optional>
#include <string>

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/memory/memory_config.h"

namespace hybrid_trainer {

/// Where the tensors of a run may lie: the device, host memory, a scratch file.
class MemoryPlaces {
 public:
  /// `device` must outlive it.
  MemoryPlaces(const MemoryConfig& config, const Stream& device, std::shared_ptr<MemoryPool> host)
      : folder_(config.scratch_folder()),
        overflow_(config.weights == "file" ? "file" : "host"),
        device_(device),
        host_(std::move(host)) {}
  const Stream& device() const { return device_; }
  const Stream& host() const { return host_; }
  /// Of a placement_names(); the file is made when it is first asked for. Throws CannotCreate.
  const Stream& at(const std::string& placement);
  /// Where what is as large as the weights goes: host memory, or the file where the weights are in
  /// one, as the host may not hold them.
  const Stream& overflow() { return at(overflow_); }
  /// The most that the file took of the disk.
  std::size_t file_bytes() const { return file_ ? file_->pool()->use().most_taken : 0; }

 private:
  std::string folder_;
  const char* overflow_;
  const Stream& device_;
  Stream host_;
  std::optional<Stream> file_;
};

}  // namespace hybrid_trainer
