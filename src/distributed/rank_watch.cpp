#include "src/distributed/rank_watch.h"

#include <sys/prctl.h>
#include <unistd.h>
#include <future>

#include "src/core/cuda_runtime.h"
#include "src/core/machine.h"
#include "src/core/threads.h"
#include "src/distributed/rank_connection.h"

namespace hybrid_trainer {

namespace asio = boost::asio;

class RankWatch::Channel {
 public:
  Channel(Communicator& ranks, RankWatchSettings settings)
      : settings_(std::move(settings)), rank_(ranks.rank()), hosts_(gather_hosts(ranks)) {
    const auto now = Clock::now();
    watched_.resize(static_cast<std::size_t>(ranks.size()));
    for (WatchedRank& one : watched_) one.last_heartbeat = one.last_progress = now;
    connect(ranks);
    ::prctl(PR_SET_PDEATHSIG, 0);  // the watch reports the launcher's end
    begin_tick();
    thread_ = start_thread([this] {
      return std::jthread([this, device = CallerDevice()] {
        device.use();
        context_.run();
      });
    });
    // An accepted rank may not be in `connections_` yet, and would miss rank 0's last message.
    if (rank_ == 0 && ranks.size() > 1) all_connected_.get_future().wait_for(kConnectTimeout);
    ranks.barrier();
  }
  ~Channel() {
    asio::post(context_, [this] {
      send_to_all({.kind = WatchMessage::Kind::kLeaves, .rank = rank_});
      context_.stop();
    });
  }
  Channel(const Channel&) = delete;

 private:
  static constexpr std::chrono::seconds kConnectTimeout{30};

  static std::vector<std::string> gather_hosts(Communicator& ranks) {
    return ranks.host_gather(concat(host_name(), ", process ", ::getpid()));
  }

  /// Connects each rank to rank 0, which listens until all have connected.
  void connect(Communicator& ranks) {
    const std::vector<std::string> networks = ranks.host_gather(own_network());
    const bool is_one = std::ranges::count(networks, networks.front()) == ranks.size();
    RankIdentity mine{
        .secret = settings_.secret, .purpose = "watch", .rank = rank_, .size = ranks.size()};
    std::string addresses;
    if (rank_ == 0) {
      auto acceptor = open_listener(is_one ? ListenScope::kThisMachine : ListenScope::kAllMachines);
      const RankEndpoint bound = acceptor.local_endpoint();
      addresses = addresses_text(
          bound.port(), is_one ? std::vector{bound.address().to_string()} : own_addresses());
      gate_ = std::make_shared<RankGate>(std::move(acceptor), mine,
                                         [this](const IntroducedRank& rank, RankSocket socket) {
                                           if (rank.rank == 0) return;
                                           add(std::move(socket), rank.rank);
                                           if (connections_.size() + 1 < watched_.size()) return;
                                           gate_->close();
                                           all_connected_.set_value();
                                         });
      gate_->open();
    }
    addresses = ranks.host_gather(addresses).front();
    if (rank_ > 0) add(connect_to_first(addresses, mine), 0);
  }

  RankGate::Acceptor open_listener(ListenScope reach) {
    try {
      return open_acceptor(context_, reach, 0);
    } catch (const boost::system::system_error& error) {
      throw DeviceError(concat("rank 0 cannot open a port for the ranks' health checks: ",
                               error.code().message()));
    }
  }

  RankSocket connect_to_first(const std::string& addresses, const RankIdentity& mine) {
    constexpr std::chrono::milliseconds kPause{100};
    const auto end = Clock::now() + kConnectTimeout;
    for (;;) {
      RankCall call = call_rank(endpoints_of(addresses), mine, context_, end);
      if (call.problem.empty() && call.answer.rank == 0) {
        context_.restart();
        return std::move(call.socket);
      }
      if (Clock::now() > end)
        throw DeviceError(concat("rank 0 cannot be reached by TCP at any of ", addresses, ": ",
                                 call.problem, "; the ranks' health checks need this port"));
      std::this_thread::sleep_for(kPause);
    }
  }

  /// Adds a connection. A rank that connects again has lost its earlier connection.
  void add(RankSocket socket, int peer) {
    std::erase_if(connections_, [&](const auto& one) {
      if (one->peer() != peer) return false;
      one->close();
      return true;
    });
    connections_.push_back(std::make_shared<WatchConnection>(
        std::move(socket), peer, static_cast<int>(watched_.size()),
        [this](WatchConnection& from, const WatchMessage* message) { receive(from, message); }));
    connections_.back()->start();
    connections_.back()->send({.rank = rank_});
  }

  void receive(WatchConnection& from, const WatchMessage* message) {
    if (message == nullptr) {
      // A peer whose call timed out connects again.
      const bool may_reconnect = gate_ != nullptr && gate_->is_open();
      watched(from.peer()).has_gone = !may_reconnect;
      std::erase_if(connections_, [&](const auto& one) { return one.get() == &from; });
      if (!was_suspended()) decide();
      return;
    }
    if (message->kind == WatchMessage::Kind::kLost)
      return handle({message->rank, std::string(message->reason.data())});
    if (message->kind == WatchMessage::Kind::kLeaves) watched(from.peer()).has_finished = true;
    record_progress(watched(from.peer()), {message->work, message->entered, message->left},
                    Clock::now());
  }

  void begin_tick() {
    tick_.expires_after(settings_.limits.heartbeat);
    tick_.async_wait([this](const auto& error) {
      if (error) return;
      const bool suspended = was_suspended();
      last_tick_ = Clock::now();
      for (WatchedRank& one : watched_)
        one.last_heartbeat = suspended ? last_tick_ : one.last_heartbeat;
      const RankProgress mine = settings_.progress();
      record_progress(watched(rank_), mine, Clock::now());
      send_to_all({.rank = rank_, .work = mine.work, .entered = mine.entered, .left = mine.left});
      if (!suspended) decide();
      begin_tick();
    });
  }

  /// Returns whether this process was suspended. Then it must read messages before ranks count as
  /// lost.
  bool was_suspended() const { return Clock::now() - last_tick_ > settings_.limits.silence / 2; }

  /// Checks whether a rank is lost. Rank 0 checks all ranks; the other ranks check only rank 0.
  void decide() {
    if (::getppid() != launcher_)
      return handle({kLauncherLost, concat("the launcher (process ", launcher_, ") has ended")});
    std::vector<WatchedRank> candidates = watched_;
    for (std::size_t i = 0; i < candidates.size() && rank_ != 0; ++i) {
      candidates[i].has_finished = candidates[i].has_finished || i > 0;
      candidates[i].last_progress = Clock::now();
    }
    if (const auto lost = find_lost_rank(candidates, settings_.limits, Clock::now())) handle(*lost);
  }

  void handle(const LostRank& lost) {
    if (std::exchange(is_over_, true)) return;
    WatchMessage message{.kind = WatchMessage::Kind::kLost, .rank = lost.rank};
    lost.reason.copy(message.reason.data(), message.reason.size() - 1);
    send_to_all(message);
    const bool reports = rank_ == (lost.rank == 0 ? 1 : 0);
    settings_.report(
        lost.rank == kLauncherLost
            ? lost.reason
            : concat("rank ", lost.rank, " (", hosts_[static_cast<std::size_t>(lost.rank)],
                     ") is lost: ", lost.reason),
        reports);
    std::this_thread::sleep_for(settings_.limits.farewell *
                                ((lost.is_silent ? 10 : 1) + (reports ? 0 : 9)));
    settings_.end();
  }

  void send_to_all(const WatchMessage& message) {
    for (const auto& connection : connections_) connection->send(message);
  }

  WatchedRank& watched(int rank) { return watched_[static_cast<std::size_t>(rank)]; }

  const RankWatchSettings settings_;
  const pid_t launcher_ = ::getppid();
  const int rank_;
  const std::vector<std::string> hosts_;
  std::vector<WatchedRank> watched_;
  Clock::time_point last_tick_ = Clock::now();
  bool is_over_ = false;
  asio::io_context context_;
  std::shared_ptr<RankGate> gate_;    // used only on rank 0
  std::promise<void> all_connected_;  // used only on rank 0
  std::vector<std::shared_ptr<WatchConnection>> connections_;
  asio::steady_timer tick_{context_};
  std::jthread thread_;
};

RankWatch::RankWatch(Communicator& ranks, RankWatchSettings settings)
    : channel_(std::make_unique<Channel>(ranks, std::move(settings))) {}

RankWatch::~RankWatch() = default;

}  // namespace hybrid_trainer
