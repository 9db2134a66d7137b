#pragma once

#include <functional>
#include <list>
#include <memory>

#include "src/distributed/rank_handshake.h"

namespace hybrid_trainer {

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

}  // namespace hybrid_trainer
