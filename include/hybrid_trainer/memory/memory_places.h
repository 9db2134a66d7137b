#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/memory/memory_config.h"

namespace hybrid_trainer {

/// Where each weight lies while nothing computes with it: memory.device_map and, for what that does
/// not name, memory.weights. Vectors always lie on the device.
class DeviceMap {
 public:
  /// Throws ConfigError of a text that is neither empty nor PATTERN=PLACE, several with commas
  /// between them; "auto" names no place itself.
  explicit DeviceMap(const MemoryConfig& config);

  /// A placement_names() for the weight of this name: of the first pattern that it matches.
  const std::string& place_of(const std::string& name) const;
  /// The patterns of memory.device_map that match none of these names.
  std::vector<std::string> unmatched(const std::vector<std::string>& names) const;
  /// Whether anything may lie at this place.
  bool uses(const std::string& place) const;
  /// Where what is as large as the weights goes that leaves the device: host memory, or the file where
  /// any weight is in one, as the host may not hold them all.
  const char* overflow() const { return uses("file") ? "file" : "host"; }
  /// The place farthest from the device that anything may lie at.
  const std::string& farthest() const;

 private:
  std::vector<std::pair<std::string, std::string>> places_;  // by pattern; the last one is "*"
};

/// Appends the problems of memory.device_map.
void collect_device_map_problems(const MemoryConfig& config, std::vector<std::string>& problems);

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
  /// See DeviceMap.
  const Stream& overflow() { return at(overflow_); }
  /// Use of its file.
  MemoryUse file_use() const;

 private:
  std::string folder_;
  const char* overflow_;
  const Stream& device_;
  Stream host_;
  std::optional<Stream> file_;  // in folder_
};

}  // namespace hybrid_trainer
