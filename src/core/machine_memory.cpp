#include "hybrid_trainer/core/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

#include "src/core/control_groups.h"

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

}  // namespace

MachineMemory machine_memory(const fs::path& root) {
  const fs::path info = root / "proc/meminfo";
  MachineMemory memory{number_after(info, "MemTotal:") * 1024,
                       number_after(info, "MemAvailable:") * 1024};
  visit_control_groups(root, "memory", [&](const fs::path& group, int version) {
    const GroupFiles& files = version == 1 ? kVersion1 : kVersion2;
    const auto limit = number_in(group / files.limit);
    if (!limit) return;
    const std::size_t use = number_in(group / files.use).value_or(0);
    const std::size_t kept =
        use - std::min(use, number_after(group / "memory.stat", files.reclaimable));
    memory.total_bytes = std::min(memory.total_bytes, *limit);
    memory.available_bytes = std::min(memory.available_bytes, *limit - std::min(*limit, kept));
  });
  return memory;
}

}  // namespace hybrid_trainer
