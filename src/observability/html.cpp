#include "html.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

std::string html_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char character : text) {
    switch (character) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += character;
    }
  }
  return out;
}

std::string filled(std::string_view page, const std::map<std::string, std::string>& parts) {
  std::string out;
  for (std::size_t open = 0; (open = page.find("{{")) != std::string_view::npos;) {
    const std::size_t close = page.find("}}", open);
    require(close != std::string_view::npos, "report page: {{ without }}");
    const auto part = parts.find(std::string(page.substr(open + 2, close - open - 2)));
    require(part != parts.end(), "report page: a {{name}} without a part");
    out.append(page.substr(0, open)).append(part->second);
    page.remove_prefix(close + 2);
  }
  return out.append(page);
}

}  // namespace hybrid_trainer
