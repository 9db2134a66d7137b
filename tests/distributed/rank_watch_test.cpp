#include "hybrid_trainer/distributed/rank_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/asio.hpp>
#include <mutex>
#include <thread>

#include "hybrid_trainer/distributed/thread_communicator.h"
#include "src/distributed/side_channel.h"

namespace hybrid_trainer {
namespace {

using namespace std::chrono_literals;

/// What ranks told, by rank, and who spoke.
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

/// Threads as ranks, with limits of parts of a second.
RankWatchSettings watched_by(Told& told, int rank, std::function<RankProgress()> progress) {
  RankWatchSettings settings;
  settings.limits = {.beat = 20ms, .silence = 2000ms, .no_progress = 400ms, .farewell = 20ms};
  settings.progress = std::move(progress);
  settings.tell = [&told, rank](const std::string& line, bool speaks) {
    const std::lock_guard lock(told.mutex);
    told.lines[static_cast<std::size_t>(rank)] = line;
    told.spoke[static_cast<std::size_t>(rank)] = speaks;
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

TEST(RankWatch, LetsRanksEndInOrder) {
  Told told(3);
  run_thread_ranks(3, [&](Communicator& ranks) {
    const RankWatch watch(ranks, watched_by(told, ranks.rank(), moving));
    std::this_thread::sleep_for(100ms * (1 + ranks.rank()));
  });
  EXPECT_EQ(told.lines, std::vector<std::string>(3));
  EXPECT_EQ(told.ended, 0);
}

/// Others wait for one that does nothing, be it rank 0 itself.
TEST(RankWatch, NamesARankThatIsStuck) {
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

/// A connection that is no rank's, without the number that rank 0 drew, changes nothing.
TEST(RankWatch, DoesNotListenToStrangers) {
  boost::asio::io_context context;
  boost::asio::ip::tcp::acceptor acceptor(context, {boost::asio::ip::tcp::v4(), 0});
  std::uint64_t nonce = 0;
  auto stranger = connect_to(addresses_text(7, acceptor.local_endpoint().port()), nonce, context);
  EXPECT_EQ(nonce, 7u);
  int messages = 0, ends = 0;
  const auto connection = std::make_shared<SideConnection>(
      acceptor.accept(), 8, [&](SideConnection&, const SideMessage* message) {
        ++(message == nullptr ? ends : messages);
      });
  connection->start();
  SideMessage lost{.nonce = nonce, .kind = SideMessage::Kind::kLost, .rank = 1};
  boost::asio::write(stranger, boost::asio::buffer(&lost, sizeof lost));
  context.run();
  EXPECT_EQ(messages, 0);
  EXPECT_EQ(ends, 1);
}

TEST(RankWatch, SaysWhereRank0CannotBeReached) {
  boost::asio::io_context context;
  std::uint64_t nonce = 0;
  try {
    connect_to("3 1 127.0.0.1", nonce, context);  // port 1: nobody listens
    FAIL() << "somebody listens at port 1";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("127.0.0.1"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hybrid_trainer
