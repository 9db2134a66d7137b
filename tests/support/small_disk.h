#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace hybrid_trainer {

/// Runs `test` in a child process that sees an empty disk of `bytes` at `folder`: a tmpfs in a
/// private mount namespace. Failures in the child count as failures of the calling test. Returns
/// the reason if the system does not allow such a disk, else "".
std::string run_on_small_disk(const std::string& folder, std::size_t bytes,
                              const std::function<void()>& test);

/// Extends `file` until its disk is full.
void fill_disk(const std::string& file);

}  // namespace hybrid_trainer
