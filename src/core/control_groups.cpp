#include "src/core/control_groups.h"

#include <fstream>

namespace hybrid_trainer {
namespace fs = std::filesystem;

void visit_control_groups(const fs::path& root, const std::string& controller,
                          const std::function<void(const fs::path&, int)>& visit) {
  const auto visit_up = [&](const fs::path& mount, fs::path path, int version) {
    for (path = path.relative_path();; path = path.parent_path()) {
      visit(mount / path, version);
      if (path.empty()) return;
    }
  };
  const fs::path groups = root / "sys/fs/cgroup";
  std::ifstream own(root / "proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {  // "4:cpu,cpuacct:/a/b", "0::/a/b"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* const mount : {"", "unified"}) visit_up(groups / mount, path, 2);
    } else if ((',' + controllers + ',').find(',' + controller + ',') != std::string::npos) {
      std::error_code absent;
      const bool is_alone = fs::exists(groups / controller, absent);
      visit_up(groups / (is_alone ? controller : controllers), path, 1);
    }
  }
}

}  // namespace hybrid_trainer
