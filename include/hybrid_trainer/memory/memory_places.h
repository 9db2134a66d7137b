#pragma once

#include <map>
#include <memory>
#include <string>

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/memory/device_map.h"

namespace hybrid_trainer {

/// Where the tensors of a run may lie: the device, host memory, a scratch file.
class MemoryPlaces {
 public:
  /// `device` must outlive it.
  MemoryPlaces(const MemoryConfig& config, const Stream& device, std::shared_ptr<MemoryPool> host)
      : folder_(config.scratch_folder()),
        overflow_(DeviceMap(config).overflow()),
        device_(device),
        host_(std::move(host)) {}
  const Stream& device() const { return device_; }
  const Stream& host() const { return host_; }
  /// The stream of one of placement_names(); the file is made when it is first asked for. Throws
  /// CannotCreate.
  const Stream& at(const std::string& placement);
  /// A scratch file in the folder, which the config's `key` names. Throws CannotCreate.
  const Stream& file_in(const std::string& folder, const char* key);
  /// See DeviceMap.
  const Stream& overflow() { return at(overflow_); }
  /// Use of all its files; the sums of their peaks.
  MemoryUse file_use() const;

 private:
  std::string folder_;
  const char* overflow_;
  const Stream& device_;
  Stream host_;
  std::map<std::string, Stream> files_;  // by folder
};

}  // namespace hybrid_trainer
