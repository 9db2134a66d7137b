#pragma once

#include <map>
#include <string>
#include <string_view>

namespace hybrid_trainer {

struct HttpRequest {
  std::string path;  // decoded: "/run/a b/"
  std::map<std::string, std::string> query;
  std::string last_event;  // the header Last-Event-ID; "" without one
};

/// Of a request line's target, such as "/run/a%20b/?from=3".
HttpRequest request_of(std::string_view target, std::string_view last_event);

/// Whether a request's Host is this machine by itself. A page of the web that has its name resolved to
/// 127.0.0.1 sends its own.
bool is_local(std::string_view host);

}  // namespace hybrid_trainer
