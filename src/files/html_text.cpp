#include "hybrid_trainer/files/html_text.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/sha256.h"
#include "hybrid_trainer/files/utf8.h"

namespace hybrid_trainer {
namespace {

std::string base64(const Digest& digest) {
  constexpr std::string_view kSigns =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < digest.size(); i += 3) {
    const auto byte = [&](std::size_t at) { return at < digest.size() ? digest[at] : 0u; };
    const unsigned bits = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    for (int shift = 18; shift >= 0; shift -= 6) out += kSigns[bits >> shift & 63];
  }
  out.back() = '=';  // 32 bytes are 43 signs
  return out;
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char character : well_formed_utf8(text)) {
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

std::string filled_page(std::string_view page, const std::map<std::string, std::string>& parts) {
  std::string out;
  for (std::size_t open = 0; (open = page.find("{{")) != std::string_view::npos;) {
    const std::size_t close = page.find("}}", open);
    require(close != std::string_view::npos, "page: {{ without }}");
    const auto part = parts.find(std::string(page.substr(open + 2, close - open - 2)));
    require(part != parts.end(), "page: a {{name}} without a part");
    out.append(page.substr(0, open)).append(part->second);
    page.remove_prefix(close + 2);
  }
  return out.append(page);
}

std::string content_policy(std::string_view script) {
  const std::string scripts =
      script.empty() ? "'none'" : concat("'sha256-", base64(sha256(script)), "'");
  return concat("default-src 'none'; style-src 'unsafe-inline'; script-src ", scripts,
                "; connect-src 'self'; base-uri 'none'; form-action 'none'");
}

}  // namespace hybrid_trainer
