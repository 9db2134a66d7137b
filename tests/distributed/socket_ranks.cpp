#include "tests/distributed/socket_ranks.h"

#include <boost/asio.hpp>
#include <thread>

namespace hybrid_trainer::testing {

std::uint16_t free_port() {
  boost::asio::io_context context;
  const boost::asio::ip::tcp::acceptor any(context, {boost::asio::ip::tcp::v4(), 0});
  return any.local_endpoint().port();
}

RankRendezvous rendezvous(int rank, int size, std::uint16_t port) {
  return {.rank = rank,
          .size = size,
          .address = "localhost",
          .port = port,
          .job = "a test",
          .is_one_machine = true,
          .secret = [] { return "a test's"; }};
}

void run_sockets(int ranks, const std::function<void(std::unique_ptr<Communicator>)>& rank) {
  const std::uint16_t port = free_port();
  std::vector<std::jthread> threads;
  for (int i = 0; i < ranks; ++i) {
    threads.emplace_back([&, i] { rank(connect_by_sockets(rendezvous(i, ranks, port))); });
  }
}

void run_socket_ranks(int ranks, const std::function<void(Communicator&)>& rank) {
  run_sockets(ranks, [&](const std::unique_ptr<Communicator>& one) { rank(*one); });
}

}  // namespace hybrid_trainer::testing
