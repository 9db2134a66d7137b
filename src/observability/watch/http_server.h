#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
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

/// What is sent to a client bit by bit for as long as it listens.
class EventStream {
 public:
  virtual ~EventStream() = default;
  /// All that is new since the last call; "" if nothing is.
  virtual std::string news() = 0;
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/html; charset=utf-8";
  std::string body{};
  std::string policy{};                   // Content-Security-Policy; "": nothing may run
  std::string location{};                 // of a redirection
  std::unique_ptr<EventStream> events{};  // in place of type and body
};

/// Answers GET and HEAD over HTTP/1.1 on 127.0.0.1, in one thread. Requests that name another host are
/// refused, so that no page of the web reads what is shown here.
class HttpServer {
 public:
  /// Comments keep a stream's connection open while it has no news.
  static constexpr int kSecondsBetweenComments = 15;
  static constexpr int kMostConnections = 128;

  /// Listens; port 0 takes a free one. Throws InUse where the port is taken, CannotCreate.
  HttpServer(std::uint16_t port, std::function<HttpAnswer(const HttpRequest&)> answer);
  ~HttpServer();
  std::uint16_t port() const;
  /// Serves until SIGINT, SIGTERM, SIGHUP or stop(). Every `interval` seconds calls `tick`; where that
  /// says true, each stream is asked for its news.
  void run(double interval, const std::function<bool()>& tick);
  /// From any thread.
  void stop();

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace hybrid_trainer
