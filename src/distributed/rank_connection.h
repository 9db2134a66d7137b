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

/// How a rank introduces itself over a new connection.
struct RankIdentity {
  std::string secret;   // of the job; never sent
  std::string purpose;  // connections for something else, or of another job, have another
  int rank = 0, size = 1;
  std::string text{};  // told together with the rank
};

/// What the other side has proved to be.
struct IntroducedRank {
  int rank = -1;
  std::string text;
};

// Who is called sends a random number. The caller answers with one of its own and with a hash of
// both, its rank and text under the secret; then who is called does the same. So each side proves
// that it knows the secret, and nobody hears anything of it, nor what would help later. What is
// read is checked before it is used. Both throw boost::system::system_error where the connection
// ends, and with errc::permission_denied where the other side is no rank of this job.

/// The caller's side, up to the welcome.
boost::asio::awaitable<IntroducedRank> introduce(RankSocket& socket, const RankIdentity& mine);
/// The other side, up to the caller's proof; welcome() then ends it.
struct Challenged {
  IntroducedRank caller;
  std::string numbers;  // both sides'
};
boost::asio::awaitable<Challenged> challenge(RankSocket& socket, const RankIdentity& mine);
boost::asio::awaitable<void> welcome(RankSocket& socket, const RankIdentity& mine,
                                     const Challenged& challenged);

using RankEndpoint = boost::asio::ip::tcp::endpoint;

/// What no other machine, or container with a network of its own, has.
std::string own_network();
/// Where a rank that listens at this port may be reached: "PORT NETWORK ADDRESS ADDRESS …", with
/// this machine's own_network().
std::string addresses_text(std::uint16_t port, const std::vector<std::string>& addresses);
/// Of all of this machine's interfaces, this machine's own (loopback) first.
std::vector<std::string> own_addresses();
/// Loopback addresses only where the text is of this machine: at those of another one's list anybody
/// who listens here would answer.
std::vector<RankEndpoint> endpoints_of(const std::string& addresses_text);

/// Runs the task in the context until it has ended, and closes its socket at `end`. What went wrong,
/// or "".
std::string run_task(boost::asio::io_context& context, RankSocket& socket, Clock::time_point end,
                     boost::asio::awaitable<void> task);

struct RankCall {
  RankSocket socket;
  IntroducedRank answer{};
  std::string problem{};  // "" where a rank has answered
};
/// Calls the endpoints one after the other until a rank of this job answers, each for two seconds.
RankCall call_rank(const std::vector<RankEndpoint>& endpoints, const RankIdentity& mine,
                   boost::asio::io_context& context, Clock::time_point end);

/// Lets the ranks of a job in at a port, and nobody else. A caller that has not proved to be one
/// within two seconds is turned away, and where many wait, the one that has waited longest: so
/// strangers cost some descriptors and hold nothing up. Used in its context's thread alone.
class RankGate : public std::enable_shared_from_this<RankGate> {
 public:
  using Acceptor = boost::asio::ip::tcp::acceptor;
  /// Told of each rank that comes in; one that comes again has lost its connection before.
  using Enter = std::function<void(IntroducedRank, RankSocket)>;
  static constexpr std::size_t kMostCallers = 64;

  RankGate(Acceptor acceptor, RankIdentity mine, Enter enter);
  void open();
  /// Nobody comes in any more.
  void close();
  bool is_open() const { return acceptor_.is_open(); }

 private:
  struct Caller;
  using Callers = std::list<std::shared_ptr<Caller>>;

  static boost::asio::awaitable<void> accept(std::shared_ptr<RankGate> self);
  static boost::asio::awaitable<void> let_in(std::shared_ptr<RankGate> self,
                                             std::shared_ptr<Caller> caller);
  void receive(RankSocket socket);
  void turn_oldest_away();

  Acceptor acceptor_;
  const RankIdentity mine_;
  Enter enter_;
  boost::asio::steady_timer pause_;
  Callers callers_;  // the oldest first
};

/// Where a rank listens: at this machine alone where all ranks are on it, else at `address`, or at
/// all of the machine's, by IPv6 and IPv4. Throws boost::system::system_error.
enum class Reach { kThisMachine, kAllMachines };
RankGate::Acceptor listen_at(boost::asio::io_context& context, Reach reach, std::uint16_t port,
                             const boost::asio::ip::address& address = {});

/// What goes over a connection between two ranks' watches.
struct SideMessage {
  enum class Kind : std::uint32_t { kBeat, kLeaves, kLost };
  Kind kind = Kind::kBeat;
  std::int32_t rank = 0;  // that sends it, or that is lost
  std::uint64_t work = 0, entered = 0, left = 0;
  std::array<char, 192> reason{};
};
/// Of a message about a loss: the launcher, which is no rank.
inline constexpr int kLauncherLost = -1;

/// Whether `peer`, one of so many ranks, may say this.
bool is_sound(const SideMessage& message, int peer, int ranks);

/// One connection, used in the thread of its io_context alone.
class SideConnection : public std::enable_shared_from_this<SideConnection> {
 public:
  /// Told of each message, and once, with null, of the end.
  using Receiver = std::function<void(SideConnection&, const SideMessage*)>;

  /// To the rank `peer`, which has proved to be it, of so many.
  SideConnection(RankSocket socket, int peer, int ranks, Receiver receiver)
      : socket_(std::move(socket)), peer_(peer), ranks_(ranks), receiver_(std::move(receiver)) {}
  /// Begins to receive. What a rank would not say ends the connection.
  void start();
  /// Sends what fits without waiting: a peer that takes nothing is silent anyway.
  void send(const SideMessage& message);
  void close();
  int peer() const { return peer_; }

 private:
  void receive();
  RankSocket socket_;
  const int peer_, ranks_;
  Receiver receiver_;
  SideMessage incoming_;
};

}  // namespace hybrid_trainer
