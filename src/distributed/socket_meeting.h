#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/distributed/socket_communicator.h"
#include "src/distributed/rank_call.h"
#include "src/distributed/rank_gate.h"

namespace hybrid_trainer {

/// Connects the ranks of a job, each with each: all come to rank 0's port, are told where the
/// others are, and connect to those before them. Both sides of a connection prove that they know
/// the job's secret (rank_handshake.h).
class SocketMeeting {
 public:
  SocketMeeting(const RankMeeting& meeting, boost::asio::io_context& context);
  /// By rank; its own is not open. Throws DeviceError.
  std::vector<RankSocket> connect();

 private:
  RankGate::Acceptor open();
  void let_others_in(RankGate::Acceptor acceptor);
  void wait_for_others();
  void exchange_addresses();
  void receive_addresses();
  void reach_first(const std::string& own_addresses);
  void reach(int rank);
  std::vector<RankEndpoint> endpoints_of_first(std::string& problem);
  boost::asio::ip::address used_address();
  RankIdentity identity(const std::string& text) const;
  [[noreturn]] void throw_not_met(const std::string& what) const;

  const RankMeeting meeting_;
  boost::asio::io_context& context_;
  const Clock::time_point end_;
  std::string secret_;
  std::vector<std::string> addresses_;  // by rank
  std::vector<RankSocket> sockets_;
  std::shared_ptr<RankGate> gate_;
};

}  // namespace hybrid_trainer
