#pragma once

#include <boost/asio.hpp>
#include <optional>
#include <vector>

#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/distributed/socket_communicator.h"

namespace hybrid_trainer {

using RankSocket = boost::asio::ip::tcp::socket;

/// Connects the ranks of a job, each with each: all come to rank 0's port, are told where the
/// others are, and connect to those before them.
class SocketMeeting {
 public:
  SocketMeeting(const RankMeeting& meeting, boost::asio::io_context& context);
  /// By rank; its own is not open. Throws DeviceError.
  std::vector<RankSocket> connect();

 private:
  struct Greeting;
  using Acceptor = boost::asio::ip::tcp::acceptor;
  using Endpoint = boost::asio::ip::tcp::endpoint;

  Acceptor open(std::uint16_t port);
  void accept_others(Acceptor& acceptor, int first);
  void exchange_addresses();
  void reach_first();
  bool reach(const std::vector<Endpoint>& endpoints, int rank);
  bool greet(RankSocket& socket, int rank);
  Greeting greeting() const;
  bool is_of_this_job(const Greeting& said) const;
  template <class Begin>
  boost::system::error_code finish(Clock::time_point end, const Begin& begin);
  bool read(RankSocket& socket, boost::asio::mutable_buffer buffer);
  bool write(RankSocket& socket, boost::asio::const_buffer buffer);
  [[noreturn]] void throw_not_met(const std::string& what) const;

  const RankMeeting meeting_;
  boost::asio::io_context& context_;
  const Clock::time_point end_;
  std::string own_addresses_;
  std::vector<std::string> addresses_;  // by rank
  std::vector<RankSocket> sockets_;
};

}  // namespace hybrid_trainer
