#pragma once

#include <string_view>

namespace hybrid_trainer {

/// Whether `name` is `pattern`, in which each * stands for any characters.
bool matches_pattern(std::string_view name, std::string_view pattern);

}  // namespace hybrid_trainer
