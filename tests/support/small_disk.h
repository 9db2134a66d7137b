#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace hybrid_trainer {

/// Calls `test` in a process of its own that sees an empty disk of `bytes` at `folder`: a tmpfs in
/// a mount namespace, which no other process sees. Failures there count here. Returns the reason if
/// the system allows no such disk, else "".
std::string run_on_small_disk(const std::string& folder, std::size_t bytes,
                              const std::function<void()>& test);

/// Makes `file` as large as its disk allows, to the last page.
void fill_disk(const std::string& file);

}  // namespace hybrid_trainer
