#include "src/distributed/side_channel.h"

#include <ifaddrs.h>

#include <algorithm>
#include <sstream>
#include <thread>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

std::vector<std::string> own_addresses() {
  std::vector<std::string> found{"127.0.0.1"};
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in address{};
    std::copy_n(reinterpret_cast<const char*>(one->ifa_addr), sizeof address,
                reinterpret_cast<char*>(&address));
    const std::string text = asio::ip::address_v4(ntohl(address.sin_addr.s_addr)).to_string();
    if (std::find(found.begin(), found.end(), text) == found.end()) found.push_back(text);
  }
  ::freeifaddrs(all);
  return found;
}

/// Connects, and waits for rank 0's greeting, which a stranger at an address of its own does not
/// know; what was wrong, if anything.
std::string problem_of_call(SideConnection::Socket& socket, const tcp::endpoint& to,
                            std::uint64_t nonce, asio::io_context& context) {
  constexpr std::chrono::seconds kPatience{2};
  std::string problem = "no answer";
  SideMessage greeting;
  const auto greeted = [&](const auto& error, std::size_t) {
    problem = error ? error.message() : greeting.nonce == nonce ? "" : "another program answers";
  };
  socket.async_connect(to, [&](const auto& error) {
    if (error) {
      problem = error.message();
    } else {
      asio::async_read(socket, asio::buffer(&greeting, sizeof greeting), greeted);
    }
  });
  context.run_for(kPatience);
  if (!problem.empty()) {
    const std::string first = problem;
    boost::system::error_code ignored;
    socket.close(ignored);
    context.restart();
    context.poll();  // what was waited for is called off
    problem = first;
  }
  context.restart();
  return problem;
}

}  // namespace

void SideConnection::start() {
  boost::system::error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
  receive();
}

void SideConnection::receive() {
  asio::async_read(socket_, asio::buffer(&incoming_, sizeof incoming_),
                   [self = shared_from_this()](const auto& error, std::size_t) {
                     if (error == asio::error::operation_aborted) return;
                     if (error || self->incoming_.nonce != self->nonce_) {
                       self->close();
                       self->receiver_(*self, nullptr);
                       return;
                     }
                     self->receiver_(*self, &self->incoming_);
                     self->receive();
                   });
}

void SideConnection::send(const SideMessage& message) {
  boost::system::error_code ignored;  // its end is told where it is read
  SideMessage outgoing = message;
  outgoing.nonce = nonce_;
  socket_.send(asio::buffer(&outgoing, sizeof outgoing), 0, ignored);
}

void SideConnection::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

std::string addresses_text(std::uint64_t nonce, std::uint16_t port) {
  std::ostringstream text;
  text << nonce << ' ' << port;
  for (const std::string& address : own_addresses()) text << ' ' << address;
  return text.str();
}

std::vector<tcp::endpoint> endpoints_of(const std::string& addresses, std::uint64_t& nonce) {
  std::istringstream text(addresses);
  std::uint16_t port = 0;
  text >> nonce >> port;
  std::vector<tcp::endpoint> endpoints;
  for (std::string address; text >> address;)
    endpoints.emplace_back(asio::ip::make_address(address), port);
  return endpoints;
}

SideConnection::Socket connect_to(const std::string& addresses, std::uint64_t& nonce,
                                  asio::io_context& context) {
  constexpr int kTries = 3;
  constexpr std::chrono::milliseconds kPause{300};
  const std::vector<tcp::endpoint> endpoints = endpoints_of(addresses, nonce);
  std::string problem;
  for (int i = 0; i < kTries; ++i) {
    for (const tcp::endpoint& endpoint : endpoints) {
      SideConnection::Socket socket(context);
      problem = problem_of_call(socket, endpoint, nonce, context);
      if (problem.empty()) return socket;
    }
    std::this_thread::sleep_for(kPause);
  }
  throw DeviceError(concat("rank 0 cannot be reached by TCP at any of ", addresses, ": ", problem,
                           "; ranks watch each other over a port that rank 0 opens"));
}

}  // namespace hybrid_trainer
