#pragma once

#include <array>
#include <boost/asio.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// What goes over a connection between two ranks' watches.
struct SideMessage {
  enum class Kind : std::uint32_t { kBeat, kLeaves, kLost };
  std::uint64_t nonce = 0;  // of the job
  Kind kind = Kind::kBeat;
  std::int32_t rank = 0;  // that sends it, or that is lost
  std::uint64_t work = 0, entered = 0, left = 0;
  std::array<char, 192> reason{};
};

/// One connection, used in the thread of its io_context alone.
class SideConnection : public std::enable_shared_from_this<SideConnection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  /// Told of each message, and once, with null, of the end.
  using Receiver = std::function<void(SideConnection&, const SideMessage*)>;

  SideConnection(Socket socket, std::uint64_t nonce, Receiver receiver)
      : socket_(std::move(socket)), nonce_(nonce), receiver_(std::move(receiver)) {}
  /// Begins to receive. What does not carry the nonce ends the connection.
  void start();
  /// Sends what fits without waiting: a peer that takes nothing is silent anyway.
  void send(const SideMessage& message);
  void close();
  int peer = -1;  // the rank, once it is known

 private:
  void receive();
  Socket socket_;
  std::uint64_t nonce_;
  Receiver receiver_;
  SideMessage incoming_;
};

/// Where rank 0 may be reached: "NONCE PORT ADDRESS ADDRESS …".
std::string addresses_text(std::uint64_t nonce, std::uint16_t port);

/// The addresses and the number of addresses_text.
std::vector<boost::asio::ip::tcp::endpoint> endpoints_of(const std::string& addresses,
                                                         std::uint64_t& nonce);

/// A connection to one of the addresses, over which rank 0 has sent a message with its nonce. Runs
/// the context, which has nothing else to do. Throws DeviceError, which names them.
SideConnection::Socket connect_to(const std::string& addresses, std::uint64_t& nonce,
                                  boost::asio::io_context& context);

}  // namespace hybrid_trainer
