#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer {

/// The candidate with the smallest edit distance to `name`, or "" where none is near (distance over
/// half its length).
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

/// "; did you mean X?" for the nearest candidate, or "; valid: A, B, C" where none is near.
std::string name_hint(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace hybrid_trainer
