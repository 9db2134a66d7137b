#include "src/watch/http_request.h"

#include <algorithm>

namespace hybrid_trainer {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// %XX and, in a query, + for a space.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int high = i + 2 < text.size() && text[i] == '%' ? digit_of(text[i + 1]) : -1;
    const int low = high >= 0 ? digit_of(text[i + 2]) : -1;
    if (low >= 0) {
      out += static_cast<char>(16 * high + low);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

HttpRequest request_of(std::string_view target, std::string_view last_event) {
  HttpRequest request;
  request.last_event = last_event;
  const std::size_t question = target.find('?');
  request.path = percent_decoded(target.substr(0, question));
  std::string_view query = question == target.npos ? "" : target.substr(question + 1);
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const std::size_t equals = pair.find('=');
    if (equals != pair.npos)
      request.query[percent_decoded(pair.substr(0, equals))] =
          percent_decoded(pair.substr(equals + 1));
  }
  return request;
}

bool is_local(std::string_view host) {
  if (host.starts_with("[::1]")) return true;
  const std::string_view name = host.substr(0, host.find(':'));
  return name == "localhost" || name == "127.0.0.1";
}

}  // namespace hybrid_trainer
