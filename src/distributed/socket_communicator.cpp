#include "hybrid_trainer/distributed/socket_communicator.h"

#include <unistd.h>

#include <cstdio>
#include <deque>

#include "hybrid_trainer/core/progress.h"
#include "src/distributed/host_communicator.h"
#include "src/distributed/rank_introduction.h"
#include "src/distributed/socket_meeting.h"

namespace hybrid_trainer {
namespace {

namespace asio = boost::asio;

/// On a slow link each piece is progress.
constexpr std::size_t kMostPiece = std::size_t{1} << 26;

/// What goes one way over a connection, one piece after the other.
struct Lane {
  struct Piece {
    char* data;
    std::size_t bytes;
  };
  std::deque<Piece> pieces;
  void add(const void* data, std::size_t bytes) {
    auto* const begin = const_cast<char*>(static_cast<const char*>(data));
    for (std::size_t at = 0; at < bytes; at += kMostPiece)
      pieces.push_back({begin + at, std::min(kMostPiece, bytes - at)});
  }
};

class SocketCommunicator final : public HostCommunicator {
 public:
  explicit SocketCommunicator(const RankMeeting& meeting)
      : HostCommunicator(meeting.rank, meeting.size),
        sockets_(SocketMeeting(meeting, context_).connect()),
        out_(sockets_.size()),
        in_(sockets_.size()) {}
  const char* name() const override { return "sockets"; }

  void abort(const std::string& reason) override {
    if (!reason.empty()) {
      std::fprintf(stderr, "%s\n",
                   concat("rank ", rank(), " on ", own_host_name(), " gave up: ", reason).c_str());
    }
    _exit(static_cast<int>(RankLost::kExitCode));
  }

 protected:
  void wait_for_transfer(std::span<const OutgoingBytes> sent,
                         std::span<const IncomingBytes> received) override {
    if (!lost_.empty()) throw RankLost(lost_);
    for (const OutgoingBytes& message : sent)
      lane(out_, message.peer).add(message.data, message.bytes);
    for (const IncomingBytes& message : received)
      lane(in_, message.peer).add(message.data, message.bytes);
    for (int peer = 0; peer < size(); ++peer) {
      send_next(peer);
      receive_next(peer);
    }
    context_.restart();
    context_.run();
    if (lost_.empty()) return;
    for (std::vector<Lane>* const lanes : {&out_, &in_}) *lanes = std::vector<Lane>(lanes->size());
    throw RankLost(lost_);
  }

 private:
  static Lane& lane(std::vector<Lane>& lanes, int peer) {
    return lanes[static_cast<std::size_t>(peer)];
  }
  RankSocket& socket(int peer) { return sockets_[static_cast<std::size_t>(peer)]; }

  void send_next(int peer) {
    if (lane(out_, peer).pieces.empty()) return;
    const Lane::Piece piece = lane(out_, peer).pieces.front();
    asio::async_write(socket(peer), asio::buffer(piece.data, piece.bytes),
                      [this, peer](const auto& error, std::size_t) {
                        if (!goes_on(error, peer, out_)) return;
                        send_next(peer);
                      });
  }

  void receive_next(int peer) {
    if (lane(in_, peer).pieces.empty()) return;
    const Lane::Piece piece = lane(in_, peer).pieces.front();
    asio::async_read(socket(peer), asio::buffer(piece.data, piece.bytes),
                     [this, peer](const auto& error, std::size_t) {
                       if (!goes_on(error, peer, in_)) return;
                       receive_next(peer);
                     });
  }

  /// Without one rank there is nothing to go on with.
  bool goes_on(const boost::system::error_code& error, int peer, std::vector<Lane>& lanes) {
    if (!lost_.empty()) return false;
    if (!error) {
      lane(lanes, peer).pieces.pop_front();
      count_progress();
      return true;
    }
    lost_ =
        concat("rank ", peer, " has ended (", error.message(), "), and rank ", rank(), " needs it");
    boost::system::error_code ignored;
    for (RankSocket& one : sockets_) one.close(ignored);
    return false;
  }

  asio::io_context context_;  // outlives its sockets
  std::vector<RankSocket> sockets_;
  std::vector<Lane> out_, in_;  // by peer
  std::string lost_;            // why
};

}  // namespace

std::unique_ptr<Communicator> meet_by_sockets(const RankMeeting& meeting) {
  return std::make_unique<SocketCommunicator>(meeting);
}

}  // namespace hybrid_trainer
