#include "src/distributed/rank_watch.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "src/distributed/host_ranks.h"
#include "src/distributed/rank_connection.h"
#include "tests/distributed/stranger.h"

namespace hybrid_trainer {
namespace {

using namespace std::chrono_literals;

/// The message of each rank, and whether the rank spoke for all.
struct Told {
  std::mutex mutex;
  std::vector<std::string> lines;
  std::vector<bool> spoke;
  std::atomic<int> ended = 0;
  explicit Told(int ranks) : lines(static_cast<std::size_t>(ranks)), spoke(lines.size()) {}
  bool all_told(int but) {
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (static_cast<int>(i) != but && lines[i].empty()) return false;
    }
    return true;
  }
};

/// Settings for ranks that are threads, with limits of fractions of a second.
RankWatchSettings watched_by(Told& told, int rank, std::function<RankProgress()> progress) {
  RankWatchSettings settings;
  settings.secret = "a test";
  settings.limits = {.heartbeat = 20ms, .silence = 2000ms, .no_progress = 400ms, .farewell = 20ms};
  settings.progress = std::move(progress);
  settings.report = [&told, rank](const std::string& line, bool reports) {
    const std::lock_guard lock(told.mutex);
    told.lines[static_cast<std::size_t>(rank)] = line;
    told.spoke[static_cast<std::size_t>(rank)] = reports;
  };
  settings.end = [&told] { ++told.ended; };
  return settings;
}

void wait_until(const std::function<bool()>& holds) {
  const auto end = Clock::now() + 20s;
  while (!holds() && Clock::now() < end) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(holds());
}

RankProgress moving() {
  static std::atomic<std::uint64_t> work = 0;
  return {++work, 1, 1};
}

TEST(RankWatch, AllowsRanksToEndInOrder) {
  Told told(3);
  run_thread_ranks(3, [&](Communicator& ranks) {
    const RankWatch watch(ranks, watched_by(told, ranks.rank(), moving));
    std::this_thread::sleep_for(100ms * (1 + ranks.rank()));
  });
  EXPECT_EQ(told.lines, std::vector<std::string>(3));
  EXPECT_EQ(told.ended, 0);
}

/// Covers rank 0 failing a check that the others would fail a moment later.
TEST(RankWatch, AllowsRankZeroToEndImmediately) {
  for (int round = 0; round < 200; ++round) {
    Told told(3);
    run_thread_ranks(3, [&](Communicator& ranks) {
      const RankWatch watch(ranks, watched_by(told, ranks.rank(), moving));
      if (ranks.rank() > 0) std::this_thread::sleep_for(10ms);
    });
    ASSERT_EQ(told.lines, std::vector<std::string>(3)) << "round " << round;
  }
}

/// Number of sockets of this process that accept connections.
int listening_sockets() {
  int count = 0;
  for (int file = 0; file < 1024; ++file) {
    int listens = 0;
    socklen_t bytes = sizeof listens;
    if (::getsockopt(file, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0) count += listens;
  }
  return count;
}

TEST(RankWatch, StopsListeningOnceAllRanksJoin) {
  const int before = listening_sockets();
  Told told(3);
  run_thread_ranks(3, [&](Communicator& ranks) {
    const RankWatch watch(ranks, watched_by(told, ranks.rank(), moving));
    ranks.barrier();
    wait_until([&] { return listening_sockets() == before; });
    ranks.barrier();
  });
}

/// The others wait for a rank without progress, even if it is rank 0.
TEST(RankWatch, ReportsStuckRank) {
  for (const int stuck : {0, 2}) {
    Told told(3);
    run_thread_ranks(3, [&](Communicator& ranks) {
      const bool waits = ranks.rank() != stuck;
      const RankWatch watch(ranks, watched_by(told, ranks.rank(), [=] {
                              return RankProgress{7, waits ? 2u : 1u, 1};
                            }));
      wait_until([&] { return told.all_told(-1) && told.ended > 0; });
    });
    for (const std::string& line : told.lines) {
      EXPECT_TRUE(line.starts_with(concat("rank ", stuck, " ("))) << line;
      EXPECT_NE(line.find("is lost: no progress for 0.4 s"), std::string::npos) << line;
    }
    EXPECT_EQ(std::count(told.spoke.begin(), told.spoke.end(), true), 1);
    EXPECT_TRUE(told.spoke[stuck == 0 ? 1 : 0]);
    EXPECT_GT(told.ended, 0);
  }
}

/// Relays data between a rank and rank 0 until the link is cut; then both receive nothing.
class CutLink {
 public:
  explicit CutLink(std::uint16_t to) {
    to_.connect({boost::asio::ip::address_v4::loopback(), to});
    thread_ = std::jthread([this] {
      acceptor_.accept(from_);
      pass(from_, to_, forth_);
      pass(to_, from_, back_);
      context_.run();
    });
  }
  ~CutLink() { context_.stop(); }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  void cut() { is_cut_ = true; }

 private:
  using Socket = boost::asio::ip::tcp::socket;
  void pass(Socket& from, Socket& to, std::array<char, 4096>& buffer) {
    from.async_read_some(boost::asio::buffer(buffer), [&](const auto& error, std::size_t bytes) {
      if (error) return;
      if (!is_cut_) boost::asio::write(to, boost::asio::buffer(buffer, bytes));
      pass(from, to, buffer);
    });
  }
  boost::asio::io_context context_;
  boost::asio::ip::tcp::acceptor acceptor_{context_, {boost::asio::ip::address_v4::loopback(), 0}};
  Socket from_{context_}, to_{context_};
  std::array<char, 4096> forth_{}, back_{};
  std::atomic<bool> is_cut_ = false;
  std::jthread thread_;
};

/// A rank that can inspect and change the results of host_gather.
class GatheringRank final : public Communicator {
 public:
  using Look = std::function<void(std::vector<std::string>& all)>;
  GatheringRank(Communicator& ranks, Look look) : ranks_(ranks), look_(std::move(look)) {}
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  const char* name() const override { return ranks_.name(); }
  void barrier() override { ranks_.barrier(); }
  std::vector<std::string> host_gather(std::string_view bytes) override {
    auto all = ranks_.host_gather(bytes);
    look_(all);
    return all;
  }
  void all_gather(const Tensor&, const Tensor&, const Stream&) override { FAIL(); }
  void gather_parts(const Tensor&, const std::vector<std::int64_t>&, const Stream&) override {
    FAIL();
  }
  void all_to_all(const Tensor&, const std::vector<std::int64_t>&, const Tensor&,
                  const std::vector<std::int64_t>&, const Stream&) override {
    FAIL();
  }
  void abort(const std::string&) override { FAIL(); }
  CommunicationUse use() const override { return ranks_.use(); }

 private:
  Communicator& ranks_;
  const Look look_;
};

/// Makes a rank that reaches rank 0 through a link.
GatheringRank linked_rank(Communicator& ranks, std::optional<CutLink>& link) {
  return {ranks, [&link](std::vector<std::string>& all) {
            const auto endpoints = endpoints_of(all.front());
            if (endpoints.empty()) return;
            const std::uint16_t port = link.emplace(endpoints.front().port()).port();
            all.front() = addresses_text(port, {"127.0.0.1"});
          }};
}

/// Rank 0 and the ranks that it still reaches name the disconnected rank, which names rank 0.
TEST(RankWatch, ReportsRankWithCutLink) {
  Told told(3);
  run_thread_ranks(3, [&](Communicator& ranks) {
    std::optional<CutLink> link;
    const bool is_cut_off = ranks.rank() == 2;
    GatheringRank linked = linked_rank(ranks, link);
    RankWatchSettings settings = watched_by(told, ranks.rank(), moving);
    settings.limits.silence = 500ms;
    const RankWatch watch(is_cut_off ? linked : ranks, settings);
    std::this_thread::sleep_for(700ms);  // no rank is lost in the meantime
    ranks.barrier();
    EXPECT_EQ(told.ended, 0);
    ranks.barrier();
    if (is_cut_off) link->cut();
    wait_until([&] { return told.all_told(-1) && told.ended > 0; });
    ranks.barrier();
  });
  for (const std::size_t rank : {0, 1, 2}) {
    EXPECT_TRUE(told.lines[rank].starts_with(rank == 2 ? "rank 0 (" : "rank 2 ("))
        << told.lines[rank];
    EXPECT_NE(told.lines[rank].find("no heartbeat for 0.5 s"), std::string::npos);
  }
  EXPECT_TRUE(told.spoke[0]);
}

/// On another machine, a different program may own the port of rank 0's first address.
TEST(RankWatch, TriesAddressesUntilRankZeroAnswers) {
  using boost::asio::ip::make_address;
  using boost::asio::ip::tcp;
  boost::asio::io_context context;
  const tcp::acceptor silent(context, {make_address("127.0.0.1"), 0});
  const std::uint16_t port = silent.local_endpoint().port();
  const tcp::endpoint second(make_address("127.0.0.2"), port),
      third(make_address("127.0.0.3"), port);
  const RankIdentity rank0{.secret = "ours", .purpose = "test", .rank = 0, .size = 2};
  RankIdentity other = rank0, rank1 = rank0;
  other.secret = "another job's";
  rank1.rank = 1;
  const auto ignored = [](const IntroducedRank&, RankSocket) {};
  const auto lies = std::make_shared<RankGate>(tcp::acceptor(context, second), other, ignored);
  const auto gate = std::make_shared<RankGate>(tcp::acceptor(context, third), rank0, ignored);
  lies->open();
  gate->open();
  const RankCall call =
      call_rank({silent.local_endpoint(), second, third}, rank1, context, Clock::now() + 20s);
  EXPECT_EQ(call.problem, "");
  EXPECT_EQ(call.socket.remote_endpoint().address().to_string(), "127.0.0.3");
}

TEST(RankWatch, ReportsRefusedConnection) {
  boost::asio::io_context context;
  const auto port_1 = endpoints_of(addresses_text(1, {"127.0.0.1"}));  // no program listens there
  const RankCall call = call_rank(port_1, {}, context, Clock::now() + 5s);
  EXPECT_NE(call.problem.find("refused"), std::string::npos) << call.problem;
}

/// Delays the ranks other than rank 0 until after a stranger.
GatheringRank late_rank(Communicator& ranks, std::optional<testing::Stranger>& stranger) {
  return {ranks, [&ranks, &stranger](const std::vector<std::string>& all) {
            const auto endpoints = endpoints_of(all.front());
            if (endpoints.empty() || ranks.rank() == 0) return;
            if (ranks.rank() == 1) stranger.emplace(endpoints.front().port(), 1000);
            if (ranks.rank() > 1) std::this_thread::sleep_for(500ms);
            while (ranks.rank() == 1 && stranger->rounds() == 0) std::this_thread::sleep_for(1ms);
          }};
}

TEST(RankWatch, StrangersDoNotEndJob) {
  Told told(3);
  std::optional<testing::Stranger> stranger;
  run_thread_ranks(3, [&](Communicator& ranks) {
    GatheringRank late = late_rank(ranks, stranger);
    const RankWatch watch(late, watched_by(told, ranks.rank(), moving));
    std::this_thread::sleep_for(500ms);
    ranks.barrier();
  });
  EXPECT_EQ(told.lines, std::vector<std::string>(3));
  EXPECT_EQ(told.ended, 0);
}

/// A message that no rank would send ends its connection before it is used.
TEST(WatchMessage, RejectsInvalidMessages) {
  using Kind = WatchMessage::Kind;
  EXPECT_TRUE(is_sound({.kind = Kind::kHeartbeat, .rank = 2}, 2, 3));
  EXPECT_TRUE(is_sound({.kind = Kind::kLeaves, .rank = 2}, 2, 3));
  EXPECT_TRUE(is_sound({.kind = Kind::kLost, .rank = 0}, 2, 3));
  EXPECT_TRUE(is_sound({.kind = Kind::kLost, .rank = kLauncherLost}, 2, 3));
  EXPECT_FALSE(is_sound({.kind = Kind::kHeartbeat, .rank = 1}, 2, 3));
  EXPECT_FALSE(is_sound({.kind = Kind::kLeaves, .rank = -1}, 2, 3));
  EXPECT_FALSE(is_sound({.kind = Kind::kLost, .rank = 3}, 2, 3));
  EXPECT_FALSE(is_sound({.kind = Kind::kLost, .rank = 1'000'000}, 2, 3));
  EXPECT_FALSE(is_sound({.kind = Kind::kLost, .rank = -2}, 2, 3));
  EXPECT_FALSE(is_sound({.kind = static_cast<Kind>(3), .rank = 2}, 2, 3));
  WatchMessage endless{.kind = Kind::kLost, .rank = 1};
  endless.reason.fill('x');
  EXPECT_FALSE(is_sound(endless, 2, 3));
}

}  // namespace
}  // namespace hybrid_trainer
