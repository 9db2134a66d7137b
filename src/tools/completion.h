#pragma once

#include <string>
#include <vector>

namespace hybrid_trainer {

/// The shells that completion_script knows.
const std::vector<std::string>& completed_shells();

/// A script that completes commands, options, their values, and keys after --set. It is made of what
/// the commands say of themselves. Throws UsageError for another shell.
std::string completion_script(const std::string& shell);

}  // namespace hybrid_trainer
