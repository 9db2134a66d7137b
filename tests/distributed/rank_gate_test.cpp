#include "src/distributed/rank_connection.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <set>
#include <thread>

#include "hybrid_trainer/core/error.h"
#include "tests/distributed/stranger.h"

namespace hybrid_trainer {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

RankIdentity identity(int rank, std::string secret = "the job's secret") {
  return {.secret = std::move(secret), .purpose = "test", .rank = rank, .size = 4, .text = "I"};
}

/// A gate of rank 0 that runs in its own thread.
class OpenGate {
 public:
  OpenGate() {
    auto acceptor = open_acceptor(context_, ListenScope::kThisMachine, 0);
    port_ = acceptor.local_endpoint().port();
    gate_ = std::make_shared<RankGate>(std::move(acceptor), identity(0),
                                       [this](const IntroducedRank& rank, RankSocket socket) {
                                         entered_.push_back(rank.rank);
                                         texts_ += rank.text;
                                         sockets_.push_back(std::move(socket));
                                         ++count_;
                                       });
    gate_->open();
    thread_ = std::jthread([this] { context_.run(); });
  }
  ~OpenGate() {
    asio::post(context_, [this] { gate_->close(); });
  }
  std::uint16_t port() const { return port_; }
  /// Waits until `after` ranks have entered, then closes the gate and joins its thread. A rank
  /// knows that it has entered slightly before the gate does.
  std::vector<int> close(int after) {
    for (const auto end = Clock::now() + 20s; count_ < after && Clock::now() < end;)
      std::this_thread::sleep_for(1ms);
    asio::post(context_, [this] { gate_->close(); });
    thread_.join();
    return entered_;
  }
  const std::string& texts() const { return texts_; }

 private:
  asio::io_context context_;
  std::uint16_t port_ = 0;
  std::shared_ptr<RankGate> gate_;
  std::vector<int> entered_;
  std::string texts_;
  std::vector<RankSocket> sockets_;
  std::atomic<int> count_ = 0;
  std::jthread thread_;
};

/// Returns the problem of a call, or "".
std::string problem_of_call(std::uint16_t port, const RankIdentity& mine, int* answer = nullptr) {
  asio::io_context context;
  const auto end = Clock::now() + 20s;
  RankCall call = call_rank({{asio::ip::address_v4::loopback(), port}}, mine, context, end);
  if (answer != nullptr) *answer = call.answer.rank;
  return call.problem;
}

TEST(RankGate, AdmitsOnlyRanksWithSecret) {
  OpenGate gate;
  int answer = -1;
  EXPECT_EQ(problem_of_call(gate.port(), identity(2), &answer), "");
  EXPECT_EQ(answer, 0);
  EXPECT_NE(problem_of_call(gate.port(), identity(1, "another secret")), "");
  EXPECT_NE(problem_of_call(gate.port(), identity(1, "")), "");
  for (const char* changed : {"purpose", "size", "rank"}) {
    RankIdentity stranger = identity(1);
    if (changed == std::string("purpose")) stranger.purpose = "another";
    if (changed == std::string("size")) stranger.size = 5;
    if (changed == std::string("rank")) stranger.rank = 4;
    EXPECT_NE(problem_of_call(gate.port(), stranger), "") << changed;
  }
  EXPECT_EQ(gate.close(1), std::vector<int>{2});
  EXPECT_EQ(gate.texts(), "I");
}

TEST(RankGate, LimitsTextLength) {
  OpenGate gate;
  RankIdentity longest = identity(2), longer = identity(1);
  longest.text.assign(1 << 16, 'x');
  longer.text.assign((1 << 16) + 1, 'x');
  EXPECT_EQ(problem_of_call(gate.port(), longest), "");
  EXPECT_NE(problem_of_call(gate.port(), longer), "");
  EXPECT_EQ(gate.close(1), std::vector<int>{2});
  EXPECT_EQ(gate.texts(), longest.text);
}

TEST(RankGate, MustProveItKnowsSecret) {
  asio::io_context context;
  auto acceptor = open_acceptor(context, ListenScope::kThisMachine, 0);
  const std::uint16_t port = acceptor.local_endpoint().port();
  std::jthread stranger([&] {
    RankSocket socket = acceptor.accept();
    std::string text(40, 'x');
    std::string("hybrid/2").copy(text.data(), 8);
    asio::write(socket, asio::buffer(text));
    std::string proof(73, '\0');  // the caller's, with its text
    boost::system::error_code ignored;
    asio::read(socket, asio::buffer(proof), ignored);
    asio::write(socket, asio::buffer(proof), ignored);  // reflected to the caller
    asio::read(socket, asio::buffer(proof), ignored);
  });
  EXPECT_NE(problem_of_call(port, identity(1)).find("another program or a rank"),
            std::string::npos);
}

TEST(RankGate, RanksEnterDespiteStranger) {
  OpenGate gate;
  {
    const testing::Stranger stranger(gate.port(), 1000);
    while (stranger.rounds() == 0) std::this_thread::sleep_for(1ms);
    for (const int rank : {1, 2, 3}) {
      std::string problem = "not called yet";
      for (int i = 0; i < 20 && !problem.empty(); ++i)
        problem = problem_of_call(gate.port(), identity(rank));
      EXPECT_EQ(problem, "") << rank;
    }
  }
  const std::vector<int> entered = gate.close(3);
  EXPECT_EQ(std::set(entered.begin(), entered.end()), (std::set<int>{1, 2, 3}));
}

/// The gate disconnects silent callers, the oldest first.
TEST(RankGate, LimitsSilentCallers) {
  OpenGate gate;
  asio::io_context context;
  std::vector<RankSocket> silent;
  for (std::size_t i = 0; i < RankGate::kMaxCallers + 10; ++i) {
    silent.emplace_back(context).connect({asio::ip::address_v4::loopback(), gate.port()});
    std::string opening(40, '\0');
    asio::read(silent.back(), asio::buffer(opening));  // makes the gate accept them in order
  }
  std::string more(1, '\0');
  boost::system::error_code error;
  asio::read(silent[9], asio::buffer(more), error);
  EXPECT_EQ(error, asio::error::eof);
  silent[10].non_blocking(true);
  silent[10].receive(asio::buffer(more), 0, error);
  EXPECT_EQ(error, asio::error::would_block);
  silent[10].non_blocking(false);
  const auto begin = Clock::now();
  asio::read(silent[10], asio::buffer(more), error);
  EXPECT_EQ(error, asio::error::eof);
  EXPECT_LT(seconds_since(begin), 10);
}

double processor_seconds() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/// The gate waits and continues when descriptors are available again.
TEST(RankGate, WaitsWhenDescriptorsRunOut) {
  OpenGate gate;
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  asio::io_context context;
  RankSocket caller(context);
  caller.open(asio::ip::tcp::v4());
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  caller.connect({asio::ip::address_v4::loopback(), gate.port()});
  const double begin = processor_seconds();
  std::this_thread::sleep_for(500ms);
  const double spent = processor_seconds() - begin;
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_LT(spent, 0.2);
  EXPECT_EQ(problem_of_call(gate.port(), identity(1)), "");
}

TEST(RankCall, LongAddressListsArriveComplete) {
  std::vector<std::string> addresses;
  for (int i = 0; i < 200; ++i) addresses.push_back(concat("fd00:1234:5678:9abc:def0::", i));
  addresses.emplace_back("10.0.0.1");
  addresses.emplace_back("nonsense");
  const auto endpoints = endpoints_of(addresses_text(29500, addresses));
  ASSERT_EQ(endpoints.size(), 201u);
  EXPECT_EQ(endpoints[199].address().to_string(), "fd00:1234:5678:9abc:def0::199");
  EXPECT_EQ(endpoints[200].address().to_string(), "10.0.0.1");
  EXPECT_EQ(endpoints[200].port(), 29500);
  EXPECT_TRUE(endpoints_of("").empty());
  EXPECT_TRUE(endpoints_of("99999999 net 10.0.0.1").empty() ||
              endpoints_of("99999999 net 10.0.0.1")[0].port() == 65535);
}

/// A local user could answer at a loopback address and relay proofs between the two ranks.
TEST(RankCall, DoesNotCallLoopbackOfOtherMachine) {
  const std::vector<std::string> addresses = {"127.0.0.1", "::1", "127.9.9.9", "10.0.0.1"};
  std::string text = addresses_text(29500, addresses);
  EXPECT_EQ(endpoints_of(text).size(), 4u);
  text.replace(text.find(own_network()), own_network().size(), "another-boot/net:[1]");
  const auto endpoints = endpoints_of(text);
  ASSERT_EQ(endpoints.size(), 1u);
  EXPECT_EQ(endpoints[0].address().to_string(), "10.0.0.1");
}

/// A network may have only IPv6.
TEST(RankGate, ListensOnIPv6AndIPv4) {
  asio::io_context context;
  auto acceptor = open_acceptor(context, ListenScope::kAllMachines, 0);
  if (!acceptor.local_endpoint().address().is_v6()) GTEST_SKIP() << "this system has no IPv6";
  const std::uint16_t port = acceptor.local_endpoint().port();
  boost::system::error_code error;
  RankSocket by_v6(context), by_v4(context);
  by_v6.connect({asio::ip::address_v6::loopback(), port}, error);
  if (error) GTEST_SKIP() << "IPv6 does not work here: " << error.message();
  by_v4.connect({asio::ip::address_v4::loopback(), port}, error);
  EXPECT_NE(error, asio::error::connection_refused) << "the gate does not listen on IPv4";
}

TEST(RankGate, ListensOnlyLocallyOnOneMachine) {
  asio::io_context context;
  const auto acceptor = open_acceptor(context, ListenScope::kThisMachine, 0);
  EXPECT_TRUE(acceptor.local_endpoint().address().is_loopback());
}

}  // namespace
}  // namespace hybrid_trainer
