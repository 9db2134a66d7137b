#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace hybrid_trainer {

/// Visits the control group of this process for `controller` ("cpu", "memory", "pids") and each
/// group around it, innermost first, with its folder and version (1 or 2). In a container the named
/// groups may be hidden, but the container's own is visible: at the mount.
void visit_control_groups(const std::filesystem::path& root, const std::string& controller,
                          const std::function<void(const std::filesystem::path&, int)>& visit);

}  // namespace hybrid_trainer
