#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/memory/memory_config.h"

namespace hybrid_trainer {

/// Placement of each weight between its uses, from memory.device_map, and memory.weights for
/// unmatched weights. Vectors are always on the device.
class DeviceMap {
 public:
  /// Throws ConfigError unless the text is empty, "auto", or a comma-separated list of
  /// PATTERN=PLACE. "auto" itself names no place.
  explicit DeviceMap(const MemoryConfig& config);

  /// Returns the placement of a weight: the place of the first pattern that matches `name`.
  const std::string& place_of(const std::string& name) const;
  /// Returns the patterns of memory.device_map that match none of `names`.
  std::vector<std::string> unmatched(const std::vector<std::string>& names) const;
  /// Returns whether any weight may be at `place`.
  bool uses(const std::string& place) const;
  /// Returns the place for offloaded data as large as the weights: host memory, or the file if any
  /// weight is in one, because the host may not have room for all of them.
  const char* overflow() const { return uses("file") ? "file" : "host"; }
  /// Returns the place farthest from the device that any weight may be at.
  const std::string& farthest() const;

 private:
  std::vector<std::pair<std::string, std::string>> places_;  // by pattern; the last one is "*"
};

/// Appends the problems of memory.device_map.
void collect_device_map_problems(const MemoryConfig& config, std::vector<std::string>& problems);

/// Memory locations of a run's tensors: the device, host memory, a scratch file.
class MemoryPlaces {
 public:
  /// `device` must outlive this object.
  MemoryPlaces(const MemoryConfig& config, const Stream& device, std::shared_ptr<MemoryPool> host)
      : folder_(config.scratch_folder()),
        overflow_(DeviceMap(config).overflow()),
        device_(device),
        host_(std::move(host)) {}
  const Stream& device() const { return device_; }
  const Stream& host() const { return host_; }
  /// Returns the stream of a placement. Creates the file on first use. Throws CannotCreate.
  const Stream& at(const std::string& placement);
  /// See DeviceMap::overflow.
  const Stream& overflow() { return at(overflow_); }
  /// Returns the memory use of the file.
  MemoryUse file_use() const;

 private:
  std::string folder_;
  const char* overflow_;
  const Stream& device_;
  Stream host_;
  std::optional<Stream> file_;  // in folder_
};

}  // namespace hybrid_trainer
