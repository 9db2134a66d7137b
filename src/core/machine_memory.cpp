#include "hybrid_trainer/core/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

/// The number that is all of a file; none where it says something else, as "max".
std::optional<std::size_t> number_in(const fs::path& path) {
  std::ifstream in(path);
  std::size_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

/// The number after `key` in a file of keys and numbers; 0 without one.
std::size_t number_after(const fs::path& path, const std::string& key) {
  std::ifstream in(path);
  std::size_t number = 0;
  for (std::string word; in >> word;)
    if (word == key && in >> number) return number;
  return 0;
}

/// The names that a version of control groups has for its files.
struct GroupFiles {
  const char *limit, *use, *reclaimable;
};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file"};

/// Lowers `memory` to what the group at `path` below `mount`, and each group around it, allow. In a
/// container the groups that are named may not be there to see, but their own is: at the mount.
void lower_to_groups(MachineMemory& memory, const fs::path& mount, fs::path path,
                     const GroupFiles& files) {
  for (path = path.relative_path();; path = path.parent_path()) {
    const fs::path group = mount / path;
    if (const auto limit = number_in(group / files.limit)) {
      const std::size_t use = number_in(group / files.use).value_or(0);
      const std::size_t kept =
          use - std::min(use, number_after(group / "memory.stat", files.reclaimable));
      memory.total_bytes = std::min(memory.total_bytes, *limit);
      memory.available_bytes = std::min(memory.available_bytes, *limit - std::min(*limit, kept));
    }
    if (path.empty()) return;
  }
}

bool has_memory(const std::string& controllers) {
  return (',' + controllers + ',').find(",memory,") != std::string::npos;
}

}  // namespace

MachineMemory machine_memory(const fs::path& root) {
  const fs::path info = root / "proc/meminfo", groups = root / "sys/fs/cgroup";
  MachineMemory memory{number_after(info, "MemTotal:") * 1024,
                       number_after(info, "MemAvailable:") * 1024};
  std::ifstream own(root / "proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {  // "4:memory:/a/b", "0::/a/b"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (has_memory(controllers)) lower_to_groups(memory, groups / "memory", path, kVersion1);
    if (controllers.empty()) lower_to_groups(memory, groups, path, kVersion2);
  }
  return memory;
}

}  // namespace hybrid_trainer
