#pragma once

#include <map>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Text for the inside of an element or a quoted attribute.
std::string html_escaped(std::string_view text);

/// `page` with every {{name}} replaced by its part, in one pass: parts are not searched again.
/// Throws Error on a name without a part.
std::string filled(std::string_view page, const std::map<std::string, std::string>& parts);

}  // namespace hybrid_trainer
