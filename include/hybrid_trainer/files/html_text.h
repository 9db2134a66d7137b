#pragma once

#include <map>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Text for the inside of an HTML element or a quoted attribute. Bytes that are not UTF-8 become
/// U+FFFD.
std::string html_escaped(std::string_view text);

/// `page` with every {{name}} replaced by its part, in one pass: parts are not searched again.
std::string filled_page(std::string_view page, const std::map<std::string, std::string>& parts);

/// Content-Security-Policy of a page whose only script is the content of its one script element, or
/// of a page without scripts (""). Event handlers in HTML do not run.
std::string content_policy(std::string_view script);

}  // namespace hybrid_trainer
