#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace hybrid_trainer {

struct HttpRequest {
  std::string path;  // decoded path: "/run/a b/"
  std::map<std::string, std::string> query;
  std::string last_event;  // the header Last-Event-ID; "" if there is none
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/html; charset=utf-8";
  std::string body{};
  std::string policy{};  // Content-Security-Policy; "" allows nothing
  /// If set, its text is sent in place of `body` whenever there are updates, while the client listens.
  std::function<std::string()> events{};
};

/// Answers GET and HEAD requests over HTTP/1.1 on 127.0.0.1, in one thread. Rejects requests that
/// name another host, so that web pages of other sites cannot read the contents.
class HttpServer {
 public:
  /// Interval of the comments that keep a stream's connection open while there are no updates.
  static constexpr int kSecondsBetweenComments = 15;
  static constexpr int kMaxConnections = 128;

  /// Port 0 selects a free one. Throws InUse if the port is in use, CannotCreate for other errors.
  HttpServer(std::uint16_t port, std::function<HttpAnswer(const HttpRequest&)> answer);
  ~HttpServer();
  std::uint16_t port() const;
  /// Serves until a signal or stop(). Calls tick() every `interval` seconds, and updates the
  /// streams if it returns true.
  void run(double interval, const std::function<bool()>& tick);
  /// Makes run() return. Thread-safe.
  void stop();

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace hybrid_trainer
