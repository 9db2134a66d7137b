#pragma once

#include <optional>
#include <string>

namespace hybrid_trainer {

/// A finite number such as "-1.5e3", with spaces around it; none where the text is something else.
std::optional<double> plain_number(const std::string& text);

}  // namespace hybrid_trainer
