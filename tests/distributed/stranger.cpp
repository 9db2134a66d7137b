#include "tests/distributed/stranger.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <chrono>
#include <deque>
#include <limits>

#include "src/distributed/rank_connection.h"

namespace hybrid_trainer::testing {
namespace {

using boost::asio::ip::tcp;
using namespace std::chrono_literals;

template <class Content>
std::string bytes_of(const Content& content) {
  return {reinterpret_cast<const char*>(&content), sizeof content};
}

/// Bytes that rank_connection.cpp parses as a proof, with any rank and length.
std::string forged_proof(std::int32_t rank, std::uint32_t text_bytes) {
  return std::string(32, '7') + bytes_of(rank) + bytes_of(text_bytes) + std::string(32, '\1') +
         std::string(std::min(text_bytes, 100u), 'x');
}

std::vector<std::string> things_to_send() {
  std::vector<std::string> all{"", "x", "GET / HTTP/1.1\r\n\r\n", std::string(100'000, '\0'),
                               std::string(5000, '\xff')};
  constexpr auto kMax = std::numeric_limits<std::int32_t>::max();
  for (const std::int32_t rank : {0, 1, 2, -1, 1000, kMax, -kMax}) {
    for (const std::uint32_t bytes : {0u, 5u, 100'000u, 0xffff'ffffu})
      all.push_back(forged_proof(rank, bytes));
    for (std::uint32_t kind = 0; kind < 5; ++kind) {
      WatchMessage message{.kind = static_cast<WatchMessage::Kind>(kind), .rank = rank};
      message.reason.fill('x');
      all.push_back(forged_proof(1, 0) + bytes_of(message) + bytes_of(message));
    }
  }
  return all;
}

tcp::socket connected(boost::asio::io_context& context, std::uint16_t port) {
  tcp::socket socket(context);
  boost::system::error_code ignored;
  socket.connect({boost::asio::ip::address_v4::loopback(), port}, ignored);
  return socket;
}

/// Sends `text`. If `repeats`, first sends back the bytes received.
void say(tcp::socket& socket, const std::string& text, bool repeats) {
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  std::string heard(200, '\0');
  if (repeats) {
    std::this_thread::sleep_for(1ms);
    heard.resize(socket.receive(boost::asio::buffer(heard), 0, ignored));
    socket.send(boost::asio::buffer(heard), MSG_NOSIGNAL, ignored);
  }
  socket.send(boost::asio::buffer(text), MSG_NOSIGNAL, ignored);
}

}  // namespace

Stranger::Stranger(std::uint16_t port, int silent_connections)
    : thread_([=, this] {
        rlimit descriptors{};
        ::getrlimit(RLIMIT_NOFILE, &descriptors);
        descriptors.rlim_cur = std::min<rlim_t>(descriptors.rlim_max, 8192);
        ::setrlimit(RLIMIT_NOFILE, &descriptors);
        boost::asio::io_context context;
        std::deque<tcp::socket> silent;
        const std::vector<std::string> texts = things_to_send();
        while (!is_over_) {
          for (int i = 0; i < silent_connections / 10 + 1 && !is_over_; ++i) {
            silent.push_back(connected(context, port));
            if (std::ssize(silent) > silent_connections) silent.pop_front();
          }
          for (std::size_t i = 0; i < texts.size() && !is_over_; ++i) {
            tcp::socket socket = connected(context, port);
            say(socket, texts[i], i % 3 == 0);
          }
          ++rounds_;
        }
      }) {}

}  // namespace hybrid_trainer::testing
