#include "hybrid_trainer/distributed/rank_watch.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "src/distributed/side_channel.h"

namespace hybrid_trainer {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

std::uint64_t drawn_nonce() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) ^ device();
}

}  // namespace

class RankWatch::Channel {
 public:
  Channel(Communicator& ranks, RankWatchSettings settings)
      : settings_(std::move(settings)), rank_(ranks.rank()), hosts_(gather_hosts(ranks)) {
    const auto now = Clock::now();
    watched_.resize(static_cast<std::size_t>(ranks.size()));
    for (WatchedRank& one : watched_) one.heard = one.moved = now;
    connect(ranks);
    begin_tick();
    thread_ = std::jthread([this] { context_.run(); });
    ranks.barrier();
  }
  ~Channel() {
    asio::post(context_, [this] {
      send_to_all({.kind = SideMessage::Kind::kLeaves, .rank = rank_});
      context_.stop();
    });
  }
  Channel(const Channel&) = delete;

 private:
  static std::vector<std::string> gather_hosts(Communicator& ranks) {
    return ranks.host_gather(concat(asio::ip::host_name(), ", process ", ::getpid()));
  }

  /// Others than rank 0 are known by their first message.
  void connect(Communicator& ranks) {
    std::string addresses;
    if (rank_ == 0) {
      nonce_ = drawn_nonce();
      acceptor_.emplace(context_, tcp::endpoint(tcp::v4(), 0));
      addresses = addresses_text(nonce_, acceptor_->local_endpoint().port());
      begin_accept();
    }
    addresses = ranks.host_gather(addresses).front();
    if (rank_ == 0) return;
    SideConnection& to_first = add(connect_to(addresses, nonce_, context_));
    to_first.peer = 0;
    to_first.send({.rank = rank_});  // so that it knows whose connection this is
  }

  void begin_accept() {
    acceptor_->async_accept([this](const auto& error, tcp::socket socket) {
      if (!error) add(std::move(socket)).send({.rank = rank_});  // greets
      if (acceptor_->is_open()) begin_accept();
    });
  }

  SideConnection& add(tcp::socket socket) {
    connections_.push_back(std::make_shared<SideConnection>(
        std::move(socket), nonce_,
        [this](SideConnection& from, const SideMessage* message) { receive(from, message); }));
    connections_.back()->start();
    return *connections_.back();
  }

  void receive(SideConnection& from, const SideMessage* message) {
    if (message == nullptr) {
      if (from.peer >= 0) watched(from.peer).has_gone = true;
      std::erase_if(connections_, [&](const auto& one) { return one.get() == &from; });
      if (!has_slept()) decide();
      return;
    }
    if (message->kind == SideMessage::Kind::kLost) {
      return handle({message->rank, std::string(message->reason.data())});
    }
    if (message->rank < 0 || static_cast<std::size_t>(message->rank) >= watched_.size()) return;
    from.peer = message->rank;
    if (message->kind == SideMessage::Kind::kLeaves) watched(from.peer).has_finished = true;
    hear(watched(from.peer), {message->work, message->entered, message->left}, Clock::now());
  }

  void begin_tick() {
    tick_.expires_after(settings_.limits.beat);
    tick_.async_wait([this](const auto& error) {
      if (error) return;
      const bool slept = has_slept();
      ticked_ = Clock::now();
      for (WatchedRank& one : watched_) one.heard = slept ? ticked_ : one.heard;
      const RankProgress mine = settings_.progress();
      hear(watched(rank_), mine, Clock::now());
      send_to_all({.rank = rank_, .work = mine.work, .entered = mine.entered, .left = mine.left});
      if (!slept) decide();
      begin_tick();
    });
  }

  /// Whether this process itself was stopped: what others said meanwhile is read first.
  bool has_slept() const { return Clock::now() - ticked_ > settings_.limits.silence / 2; }

  /// Rank 0 judges all; others hear of rank 0 alone.
  void decide() {
    if (::getppid() != launcher_)
      return handle({kLauncher, concat("the launcher (process ", launcher_, ") has ended")});
    std::vector<WatchedRank> judged = watched_;
    for (std::size_t i = 0; i < judged.size() && rank_ != 0; ++i) {
      judged[i].has_finished = judged[i].has_finished || i > 0;
      judged[i].moved = Clock::now();
    }
    if (const auto lost = find_lost_rank(judged, settings_.limits, Clock::now())) handle(*lost);
  }

  void handle(const LostRank& lost) {
    if (std::exchange(is_over_, true)) return;
    SideMessage message{.kind = SideMessage::Kind::kLost, .rank = lost.rank};
    lost.reason.copy(message.reason.data(), message.reason.size() - 1);
    send_to_all(message);
    const bool speaks = rank_ == (lost.rank == 0 ? 1 : 0);
    settings_.tell(lost.rank == kLauncher ? lost.reason
                                          : concat("rank ", lost.rank, " (",
                                                   hosts_[static_cast<std::size_t>(lost.rank)],
                                                   ") is lost: ", lost.reason),
                   speaks);
    std::this_thread::sleep_for(settings_.limits.farewell *
                                ((lost.is_silent ? 10 : 1) + (speaks ? 0 : 9)));
    settings_.end();
  }

  void send_to_all(const SideMessage& message) {
    for (const auto& connection : connections_) connection->send(message);
  }

  WatchedRank& watched(int rank) { return watched_[static_cast<std::size_t>(rank)]; }

  static constexpr int kLauncher = -1;  // where a rank is lost

  const RankWatchSettings settings_;
  const pid_t launcher_ = ::getppid();
  const int rank_;
  const std::vector<std::string> hosts_;
  std::uint64_t nonce_ = 0;
  std::vector<WatchedRank> watched_;
  Clock::time_point ticked_ = Clock::now();
  bool is_over_ = false;
  asio::io_context context_;
  std::optional<tcp::acceptor> acceptor_;
  std::vector<std::shared_ptr<SideConnection>> connections_;
  asio::steady_timer tick_{context_};
  std::jthread thread_;
};

RankWatch::RankWatch(Communicator& ranks, RankWatchSettings settings)
    : channel_(std::make_unique<Channel>(ranks, std::move(settings))) {}

RankWatch::~RankWatch() = default;

}  // namespace hybrid_trainer
