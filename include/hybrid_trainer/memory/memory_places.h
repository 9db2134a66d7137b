#pragma once

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/memory/memory_config.h"

namespace hybrid_trainer {

/// Placement of each weight between its uses. memory.device_map sets it by name patterns, and
/// memory.weights applies to weights that match no pattern. Vectors are always on the device.
class DeviceMap {
 public:
  /// Throws ConfigError for an invalid memory.device_map; "auto" counts as empty (with_device_map).
  explicit DeviceMap(const MemoryConfig& config);

  /// Returns the placement of a weight, from the first pattern that matches `name`.
  const std::string& place_of(const std::string& name) const;
  /// Returns the patterns of memory.device_map that match none of `names`.
  std::vector<std::string> unmatched(const std::vector<std::string>& names) const;
  /// Returns whether any weight may have the placement `place`.
  bool uses(const std::string& place) const;
  /// Returns the placement for offloaded data of the size of all weights: "file" if any weight is
  /// in the file, because host memory may then be too small; otherwise "host".
  const char* overflow() const { return uses("file") ? "file" : "host"; }
  /// Returns the placement farthest from the device that any weight may have.
  const std::string& farthest() const;

 private:
  std::vector<std::pair<std::string, std::string>> places_;  // by pattern; the last one is "*"
};

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
  const Stream& overflow() { return at(overflow_); }
  MemoryUse file_use() const;

 private:
  std::string folder_;
  const char* overflow_;
  const Stream& device_;
  Stream host_;
  std::optional<Stream> file_;  // created in folder_ on first use
};

}  // namespace hybrid_trainer
