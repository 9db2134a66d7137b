#pragma once

#include <array>
#include <boost/asio.hpp>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "src/core/clock.h"

namespace hybrid_trainer {

using RankSocket = boost::asio::ip::tcp::socket;

struct RankIdentity {
  std::string secret;   // secret of the job; never sent
  std::string purpose;  // distinguishes jobs and kinds of connections
  int rank = 0, size = 1;
  std::string text{};  // sent together with the rank
};

struct IntroducedRank {
  int rank = -1;
  std::string text;
};

using RankEndpoint = boost::asio::ip::tcp::endpoint;

/// Returns an identifier of this machine, or of a container with its own network.
std::string own_network();
/// Returns a rank's contact addresses: "PORT NETWORK ADDRESS ADDRESS …", with own_network().
std::string addresses_text(std::uint16_t port, const std::vector<std::string>& addresses);
/// Returns the addresses of all interfaces of this machine, loopback first.
std::vector<std::string> own_addresses();
/// Parses addresses_text, without other machines' loopback addresses: a local process could answer.
std::vector<RankEndpoint> endpoints_of(const std::string& addresses_text);

/// Runs the task until it ends, and closes its socket at `end`. Returns the error, or "".
std::string run_task(boost::asio::io_context& context, RankSocket& socket, Clock::time_point end,
                     boost::asio::awaitable<void> task);

struct RankCall {
  RankSocket socket;
  IntroducedRank answer{};
  std::string problem{};  // "" if a rank answered
};
/// Calls the endpoints in order until a rank of this job answers, each for at most two seconds.
RankCall call_rank(const std::vector<RankEndpoint>& endpoints, const RankIdentity& mine,
                   boost::asio::io_context& context, Clock::time_point end);

/// Accepts the ranks of a job at a port and rejects all other callers. Callers have two seconds to
/// authenticate. If too many callers wait, rejects the oldest one, so that unknown callers use only
/// a few descriptors and cannot block ranks. Used only in its context's thread.
class RankGate : public std::enable_shared_from_this<RankGate> {
 public:
  using Acceptor = boost::asio::ip::tcp::acceptor;
  /// Called for each rank that connects. It is called again for a rank whose connection was lost.
  using Enter = std::function<void(IntroducedRank, RankSocket)>;
  static constexpr std::size_t kMaxCallers = 64;

  RankGate(Acceptor acceptor, RankIdentity mine, Enter enter);
  void open();
  void close();
  bool is_open() const { return acceptor_.is_open(); }

 private:
  struct Caller;
  using Callers = std::list<std::shared_ptr<Caller>>;

  static boost::asio::awaitable<void> accept(std::shared_ptr<RankGate> self);
  static boost::asio::awaitable<void> admit(std::shared_ptr<RankGate> self,
                                            std::shared_ptr<Caller> caller);
  void receive(RankSocket socket);
  void reject_oldest();

  Acceptor acceptor_;
  const RankIdentity mine_;
  Enter enter_;
  boost::asio::steady_timer pause_;
  Callers callers_;  // oldest first
};

enum class ListenScope { kThisMachine, kAllMachines };
/// Returns an acceptor that listens on loopback with kThisMachine, otherwise at `address` if it is
/// specified, otherwise on all interfaces over IPv6 and IPv4. Throws boost::system::system_error.
RankGate::Acceptor open_acceptor(boost::asio::io_context& context, ListenScope reach,
                                 std::uint16_t port, const boost::asio::ip::address& address = {});

struct WatchMessage {
  enum class Kind : std::uint32_t { kHeartbeat, kLeaves, kLost };
  Kind kind = Kind::kHeartbeat;
  std::int32_t rank = 0;  // sender, or the lost rank
  std::uint64_t work = 0, entered = 0, left = 0;
  std::array<char, 192> reason{};
};
/// Value of WatchMessage::rank if the launcher is lost, which is not a rank.
inline constexpr int kLauncherLost = -1;

/// Returns whether `peer`, one of `ranks`, may send this message.
bool is_sound(const WatchMessage& message, int peer, int ranks);

/// One connection, used only in the thread of its io_context.
class WatchConnection : public std::enable_shared_from_this<WatchConnection> {
 public:
  /// Called for each message, and once with null at the end.
  using Receiver = std::function<void(WatchConnection&, const WatchMessage*)>;

  /// `socket`: connection to the authenticated rank `peer`, one of `ranks`.
  WatchConnection(RankSocket socket, int peer, int ranks, Receiver receiver)
      : socket_(std::move(socket)), peer_(peer), ranks_(ranks), receiver_(std::move(receiver)) {}
  /// Starts receiving. An invalid message closes the connection.
  void start();
  /// Sends without waiting. A peer that does not read messages counts as silent anyway.
  void send(const WatchMessage& message);
  void close();
  int peer() const { return peer_; }

 private:
  void receive();
  RankSocket socket_;
  const int peer_, ranks_;
  Receiver receiver_;
  WatchMessage incoming_;
};

}  // namespace hybrid_trainer
