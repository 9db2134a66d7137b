#pragma once

#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Text for the inside of an HTML element or a quoted attribute.
std::string html_escaped(std::string_view text);

}  // namespace hybrid_trainer
