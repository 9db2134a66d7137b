#include "hybrid_trainer/distributed/socket_communicator.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <random>

#include "hybrid_trainer/core/process_end.h"
#include "hybrid_trainer/core/progress.h"
#include "src/distributed/host_communicator.h"
#include "src/distributed/rank_introduction.h"
#include "src/distributed/socket_meeting.h"

namespace hybrid_trainer {
namespace {

namespace asio = boost::asio;

/// On a slow link each piece is progress.
constexpr std::size_t kMostPiece = std::size_t{1} << 26;

/// Shorter messages are sent; of longer ones the receiver copies the sender's memory, if it may:
/// one copy in place of two through the kernel.
constexpr std::size_t kLeastCopied = std::size_t{1} << 15;

/// How a rank of this machine tells another one whose memory to copy.
struct RankMemory {
  pid_t process = 0;
  const std::uint64_t* sample = nullptr;
  std::uint64_t value = 0;  // at the sample
};

/// False if the kernel does not let this process read the other one's memory.
bool copy_from(pid_t process, const void* from, void* to, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(kMostPiece, bytes - done);
    const iovec own{static_cast<char*>(to) + done, piece};
    const iovec theirs{static_cast<char*>(const_cast<void*>(from)) + done, piece};
    const ssize_t got = ::process_vm_readv(process, &own, 1, &theirs, 1, 0);
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
    count_progress();
  }
  return true;
}

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
        in_(sockets_.size()),
        reads_(sockets_.size()),
        is_read_(sockets_.size()) {
    if (meeting.is_one_machine) agree_on_copies();
  }
  const char* name() const override { return "sockets"; }

  void abort(const std::string& reason) override {
    if (!reason.empty()) {
      std::fprintf(stderr, "%s\n",
                   concat("rank ", rank(), " on ", own_host_name(), " gave up: ", reason).c_str());
    }
    end_process(static_cast<int>(RankLost::kExitCode));
  }

 protected:
  void wait_for_transfer(std::span<const OutgoingBytes> sent,
                         std::span<const IncomingBytes> received) override {
    std::vector<const void*> places(sent.size()), theirs(received.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const auto& [peer, data, bytes] = sent[i];
      places[i] = data;
      const bool is_copied = is_copied_by(is_read_, peer, bytes);
      lane(out_, peer).add(is_copied ? &places[i] : data, is_copied ? sizeof data : bytes);
    }
    for (std::size_t i = 0; i < received.size(); ++i) {
      const auto& [peer, data, bytes] = received[i];
      const bool is_copied = is_copied_by(reads_, peer, bytes);
      lane(in_, peer).add(is_copied ? &theirs[i] : data, is_copied ? sizeof data : bytes);
    }
    run_lanes();
    char done = 0;  // so that the sender keeps its data until then
    for (std::size_t i = 0; i < received.size(); ++i) {
      const auto& [peer, data, bytes] = received[i];
      if (!is_copied_by(reads_, peer, bytes)) continue;
      if (!copy_from(memory(peer).process, theirs[i], data, bytes))
        lose(peer, std::strerror(errno));
      if (!lost_.empty()) throw RankLost(lost_);
      lane(out_, peer).add(&done, 1);
    }
    for (const auto& [peer, data, bytes] : sent)
      if (is_copied_by(is_read_, peer, bytes)) lane(in_, peer).add(&done_, 1);
    run_lanes();
  }

 private:
  /// Each rank tries to read a number in the memory of each other one, and says whether it could.
  void agree_on_copies() {
    ::prctl(PR_SET_PTRACER, ::getppid());  // if Yama restricts it: to the launcher's processes
    static const std::uint64_t sample = std::random_device{}() | 1u;
    const RankMemory own{::getpid(), &sample, sample};
    const auto all = host_gather({reinterpret_cast<const char*>(&own), sizeof own});
    memories_.resize(all.size());
    std::string reads(all.size(), 0);
    for (std::size_t peer = 0; peer < all.size(); ++peer) {
      std::uint64_t found = 0;
      RankMemory& theirs = memories_[peer];
      std::memcpy(&theirs, all[peer].data(), std::min(sizeof theirs, all[peer].size()));
      reads[peer] =
          copy_from(theirs.process, theirs.sample, &found, sizeof found) && found == theirs.value;
    }
    const auto readers = host_gather(reads);
    for (std::size_t peer = 0; peer < all.size(); ++peer)
      is_read_[peer] = readers[peer].at(static_cast<std::size_t>(rank()));
    reads_.assign(reads.begin(), reads.end());
  }

  static bool is_copied_by(const std::vector<char>& readers, int peer, std::size_t bytes) {
    return bytes >= kLeastCopied && readers[static_cast<std::size_t>(peer)] != 0;
  }
  const RankMemory& memory(int peer) const { return memories_[static_cast<std::size_t>(peer)]; }

  void run_lanes() {
    if (!lost_.empty()) throw RankLost(lost_);
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
    lose(peer, error.message());
    return false;
  }

  void lose(int peer, const std::string& reason) {
    lost_ = concat("rank ", peer, " has ended (", reason, "), and rank ", rank(), " needs it");
    boost::system::error_code ignored;
    for (RankSocket& one : sockets_) one.close(ignored);
  }

  asio::io_context context_;  // outlives its sockets
  std::vector<RankSocket> sockets_;
  std::vector<Lane> out_, in_;         // by peer
  std::vector<char> reads_, is_read_;  // by peer: whether one copies from the other's memory
  std::vector<RankMemory> memories_;   // by peer
  char done_ = 0;
  std::string lost_;  // why
};

}  // namespace

std::unique_ptr<Communicator> meet_by_sockets(const RankMeeting& meeting) {
  return std::make_unique<SocketCommunicator>(meeting);
}

}  // namespace hybrid_trainer
