#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace hybrid_trainer::testing {

/// A connection to a local server that sends an HTTP/1.0 request, so the answer is not chunked.
class HttpClient {
 public:
  HttpClient(std::uint16_t port, const std::string& request)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      return;
    ::send(socket_, request.data(), request.size(), MSG_NOSIGNAL);
  }
  ~HttpClient() { ::close(socket_); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  static std::string get(const std::string& path, const std::string& headers = "") {
    return "GET " + path + " HTTP/1.0\r\nHost: localhost\r\n" + headers + "\r\n";
  }
  /// Reads until the server closes the connection.
  std::string rest() {
    while (receive(10)) {
    }
    return received_;
  }
  /// Waits until `text` has arrived. Returns false after `seconds`.
  bool waits_for(const std::string& text, double seconds = 2) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (received_.find(text) == std::string::npos) {
      const std::chrono::duration<double> left = end - std::chrono::steady_clock::now();
      if (left.count() <= 0 || !receive(left.count())) return false;
    }
    return true;
  }
  const std::string& received() const { return received_; }
  void forget() { received_.clear(); }

 private:
  bool receive(double seconds) {
    pollfd source{socket_, POLLIN, 0};
    if (::poll(&source, 1, static_cast<int>(1000 * seconds)) <= 0) return false;
    char bytes[4096];
    const ssize_t got = ::recv(socket_, bytes, sizeof bytes, 0);
    if (got > 0) received_.append(bytes, static_cast<std::size_t>(got));
    return got > 0;
  }
  int socket_;
  std::string received_;
};

}  // namespace hybrid_trainer::testing
