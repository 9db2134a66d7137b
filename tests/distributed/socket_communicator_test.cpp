#include "src/distributed/host_ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio.hpp>
#include <optional>
#include <thread>

#include "tests/distributed/rank_suite.h"
#include "tests/distributed/socket_ranks.h"
#include "tests/distributed/stranger.h"

namespace hybrid_trainer {
namespace {

using namespace std::chrono_literals;
using boost::asio::ip::tcp;
using testing::counted;
using testing::free_port;
using testing::message_of;
using testing::rank_stream;
using testing::rendezvous;

TEST(SocketRanks, PortInUseIsReportedInOneLine) {
  boost::asio::io_context context;
  const tcp::acceptor other(context, tcp::endpoint(tcp::v4(), 0));
  const std::uint16_t port = other.local_endpoint().port();
  const std::string told =
      message_of<DeviceError>([&] { connect_by_sockets(rendezvous(0, 2, port)); });
  EXPECT_TRUE(told.starts_with(concat("rank 0 cannot open port ", port, " of "))) << told;
  EXPECT_NE(told.find("Address already in use"), told.npos) << told;
  EXPECT_NE(told.find("MASTER_PORT"), told.npos) << told;
  EXPECT_EQ(told.find('\n'), told.npos);
}

TEST(SocketRanks, MissingRankIsReportedAfterTimeout) {
  RankRendezvous first = rendezvous(0, 3, free_port()), second = rendezvous(1, 3, first.port);
  first.limit = second.limit = 500ms;
  std::string other;
  std::jthread thread(
      [&] { other = message_of<DeviceError>([&] { connect_by_sockets(second); }); });
  const std::string told = message_of<DeviceError>([&] { connect_by_sockets(first); });
  thread.join();
  EXPECT_NE(told.find("within 0.5 s: rank 2 has not connected"), told.npos) << told;
  EXPECT_NE(other.find("did not connect to all other ranks"), other.npos) << other;
  RankRendezvous alone = rendezvous(1, 2, free_port());
  alone.limit = 300ms;
  EXPECT_NE(message_of<DeviceError>([&] {
              connect_by_sockets(alone);
            }).find("within 0.3 s: cannot reach rank 0: "),
            std::string::npos);
}

/// A caller of a different job, and one that violates the protocol.
TEST(SocketRanks, RejectsStrangers) {
  const std::uint16_t port = free_port();
  RankRendezvous stranger = rendezvous(1, 2, port);
  stranger.job = "yesterday's";
  stranger.limit = 1500ms;
  std::string turned_away;
  std::vector<std::jthread> threads;
  threads.emplace_back([&] {
    const auto rank = connect_by_sockets(rendezvous(0, 2, port));
    EXPECT_EQ(rank->host_gather("a"), (std::vector<std::string>{"a", "b"}));
  });
  threads.emplace_back([&] {
    boost::asio::io_context context;
    tcp::socket socket(context);
    boost::system::error_code error = boost::asio::error::not_connected;
    for (int i = 0; i < 200 && error; ++i) {
      std::this_thread::sleep_for(5ms);
      socket.close();
      socket.connect({boost::asio::ip::address_v4::loopback(), port}, error);
    }
    EXPECT_FALSE(error);
    const std::string noise(4096, 'x');
    boost::asio::write(socket, boost::asio::buffer(noise), error);
    turned_away = message_of<DeviceError>([&] { connect_by_sockets(stranger); });
    const auto rank = connect_by_sockets(rendezvous(1, 2, port));
    EXPECT_EQ(rank->host_gather("b"), (std::vector<std::string>{"a", "b"}));
  });
  threads.clear();
  EXPECT_NE(turned_away.find("cannot reach rank 0: it does not answer, or belongs to another job"),
            std::string::npos)
      << turned_away;
}

TEST(SocketRanks, RejectsWrongSecret) {
  const std::uint16_t port = free_port();
  RankRendezvous thief = rendezvous(1, 2, port);
  thief.secret = [] { return "guessed"; };
  thief.limit = 1000ms;
  std::vector<std::jthread> threads;
  threads.emplace_back([&] {
    const auto rank = connect_by_sockets(rendezvous(0, 2, port));
    EXPECT_EQ(rank->host_gather("a"), (std::vector<std::string>{"a", "b"}));
  });
  threads.emplace_back([&] {
    EXPECT_NE(message_of<DeviceError>([&] { connect_by_sockets(thief); }).find("another job"),
              std::string::npos);
    const auto rank = connect_by_sockets(rendezvous(1, 2, port));
    EXPECT_EQ(rank->host_gather("b"), (std::vector<std::string>{"a", "b"}));
  });
}

/// Another rank looks for the secret before rank 0 writes it, and first reads the previous job's.
TEST(SocketRanks, WaitsForLateSecret) {
  const std::uint16_t port = free_port();
  std::atomic<int> asked = 0;
  RankRendezvous late = rendezvous(1, 2, port);
  late.secret = [&] { return ++asked < 3 ? "" : asked < 6 ? "yesterday's" : "a test's"; };
  std::vector<std::jthread> threads;
  threads.emplace_back([&] { connect_by_sockets(rendezvous(0, 2, port))->barrier(); });
  threads.emplace_back([&] { connect_by_sockets(late)->barrier(); });
  threads.clear();
  EXPECT_EQ(asked, 6);
}

TEST(SocketRanks, ConnectsDespiteStrangerAtEachPort) {
  const std::uint16_t port = free_port();
  std::optional<testing::Stranger> stranger;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      if (i == 0) stranger.emplace(port, 1000);
      std::this_thread::sleep_for(200ms * i);
      const auto rank = connect_by_sockets(rendezvous(i, 3, port));
      EXPECT_EQ(rank->host_gather(std::to_string(i)), (std::vector<std::string>{"0", "1", "2"}));
    });
  }
}

/// Like several machines: listens on all interfaces and calls each of the addresses.
void meet_as_several_machines(const std::string& address) {
  const std::uint16_t port = free_port();
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      RankRendezvous mine = rendezvous(i, 3, port);
      mine.address = address;
      mine.is_one_machine = false;
      const auto rank = connect_by_sockets(mine);
      EXPECT_EQ(rank->host_gather(std::to_string(i)), (std::vector<std::string>{"0", "1", "2"}));
    });
  }
}

TEST(SocketRanks, SeveralMachinesConnectByAddress) { meet_as_several_machines("localhost"); }

TEST(SocketRanks, SeveralMachinesConnectByIPv6) {
  boost::asio::io_context context;
  tcp::acceptor acceptor(context);
  boost::system::error_code error;
  acceptor.open(tcp::v6(), error);
  if (!error) acceptor.bind({boost::asio::ip::address_v6::loopback(), 0}, error);
  if (error) GTEST_SKIP() << "IPv6 does not work here: " << error.message();
  meet_as_several_machines("::1");
}

TEST(SocketRanks, EndedRankIsReported) {
  testing::run_socket_ranks(3, [](Communicator& ranks) {
    ranks.barrier();
    if (ranks.rank() == 2) return;
    const std::string told = message_of<RankLost>([&] { ranks.barrier(); });
    EXPECT_NE(told.find("has ended ("), told.npos) << told;
    EXPECT_NE(told.find(concat("; rank ", ranks.rank(), " was in barrier, its call 4")), told.npos)
        << told;
    EXPECT_NE(message_of<RankLost>([&] { ranks.barrier(); }), "");
  });
}

}  // namespace
}  // namespace hybrid_trainer
