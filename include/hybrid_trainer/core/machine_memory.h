#pragma once

#include <cstddef>
#include <filesystem>

namespace hybrid_trainer {

/// Memory that this process may take: the machine's, or less where a control group (a container, a
/// batch job) limits it.
struct MachineMemory {
  std::size_t total_bytes = 0;
  std::size_t available_bytes = 0;  // now, without swapping
};

/// 0 is unknown. `root` is where /proc and /sys/fs/cgroup are, in versions 1 and 2.
MachineMemory machine_memory(const std::filesystem::path& root = "/");

}  // namespace hybrid_trainer
