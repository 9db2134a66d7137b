#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <random>
#include <thread>

#include "src/core/machine.h"
#include "src/distributed/host_communicator.h"
#include "src/distributed/host_ranks.h"
#include "src/distributed/job_secret.h"
#include "src/distributed/rank_connection.h"

namespace hybrid_trainer {

namespace {

/// Connects all ranks of a job. Each connects to rank 0's port, receives the other addresses, and
/// connects to the ranks with lower numbers, with the handshake of rank_connection.h.
class SocketRendezvous {
 public:
  SocketRendezvous(const RankRendezvous& rendezvous, boost::asio::io_context& context);
  /// Returns the sockets by rank. The socket of this rank is closed. Throws DeviceError.
  std::vector<RankSocket> connect();

 private:
  RankGate::Acceptor open();
  void accept_peers(RankGate::Acceptor acceptor);
  void wait_for_peers();
  void exchange_addresses();
  void receive_addresses();
  void connect_to_first(const std::string& own_addresses);
  void reach(int rank);
  std::vector<RankEndpoint> endpoints_of_first(std::string& problem);
  boost::asio::ip::address used_address();
  RankIdentity identity(const std::string& text) const {
    return {.secret = secret_,
            .purpose = "meeting of " + rendezvous_.job,
            .rank = rendezvous_.rank,
            .size = rendezvous_.size,
            .text = text};
  }
  [[noreturn]] void throw_not_connected(const std::string& what) const {
    throw DeviceError(concat("rank ", rendezvous_.rank, " of ", rendezvous_.size,
                             " did not connect to all other ranks at ", rendezvous_.address,
                             " port ", rendezvous_.port, " within ",
                             static_cast<double>(rendezvous_.limit.count()) / 1000, " s: ", what));
  }

  const RankRendezvous rendezvous_;
  boost::asio::io_context& context_;
  const Clock::time_point end_;
  std::string secret_;
  std::vector<std::string> addresses_;  // indexed by rank
  std::vector<RankSocket> sockets_;
  std::shared_ptr<RankGate> gate_;
};

namespace asio = boost::asio;
using asio::use_awaitable;
using asio::ip::tcp;
using namespace std::chrono_literals;

constexpr auto kRetryInterval = 100ms;
constexpr std::uint32_t kLongestTable = 1 << 24;

asio::awaitable<void> send_text(RankSocket& socket, std::string text) {
  const auto bytes = static_cast<std::uint32_t>(text.size());
  text.insert(0, reinterpret_cast<const char*>(&bytes), sizeof bytes);
  co_await asio::async_write(socket, asio::buffer(text), use_awaitable);
}

asio::awaitable<void> receive_text(RankSocket& socket, std::string& text) {
  std::uint32_t bytes = 0;
  co_await asio::async_read(socket, asio::buffer(&bytes, sizeof bytes), use_awaitable);
  if (bytes > kLongestTable)
    throw boost::system::system_error(asio::error::make_error_code(asio::error::message_size));
  text.resize(bytes);
  co_await asio::async_read(socket, asio::buffer(text), use_awaitable);
}

SocketRendezvous::SocketRendezvous(const RankRendezvous& rendezvous, asio::io_context& context)
    : rendezvous_(rendezvous),
      context_(context),
      end_(Clock::now() + rendezvous.limit),
      addresses_(static_cast<std::size_t>(rendezvous.size)) {
  for (int rank = 0; rank < rendezvous.size; ++rank) sockets_.emplace_back(context);
}

std::vector<RankSocket> SocketRendezvous::connect() {
  RankGate::Acceptor acceptor = open();
  const auto bound = acceptor.local_endpoint();
  const std::string own =
      addresses_text(bound.port(), bound.address().is_unspecified()
                                       ? own_addresses()
                                       : std::vector<std::string>{bound.address().to_string()});
  if (rendezvous_.rank == 0) {
    secret_ = rendezvous_.secret();
    accept_peers(std::move(acceptor));
    wait_for_peers();
    exchange_addresses();
  } else {
    connect_to_first(own);
    accept_peers(std::move(acceptor));
    exchange_addresses();
    for (int rank = 1; rank < rendezvous_.rank; ++rank) reach(rank);
    wait_for_peers();
  }
  boost::system::error_code ignored;
  for (RankSocket& socket : sockets_) socket.set_option(tcp::no_delay(true), ignored);
  return std::move(sockets_);
}

/// Listens on the interface that ranks use, if it is known.
RankGate::Acceptor SocketRendezvous::open() {
  const ListenScope reach =
      rendezvous_.is_one_machine ? ListenScope::kThisMachine : ListenScope::kAllMachines;
  const std::uint16_t port = rendezvous_.rank == 0 ? rendezvous_.port : std::uint16_t{0};
  try {
    try {
      return open_acceptor(context_, reach, port, used_address());
    } catch (const boost::system::system_error& error) {
      if (error.code() != boost::system::errc::address_not_available) throw;
      // The address belongs to another machine, which forwards to this machine.
      return open_acceptor(context_, reach, port);
    }
  } catch (const boost::system::system_error& error) {
    throw DeviceError(
        concat("rank ", rendezvous_.rank, " cannot open port ", port, " of ", host_name(),
               ", which the ranks use to connect: ", error.code().message(),
               "; choose a free port with MASTER_PORT, or for torchrun with --master-port"));
  }
}

/// Returns the local address that ranks use: on rank 0 its configured address, on other ranks the
/// local address of the route to rank 0. Returns an unspecified address if this is a loopback
/// address or, on rank 0, if the configured address is a name.
asio::ip::address SocketRendezvous::used_address() {
  boost::system::error_code error;
  asio::ip::address own = asio::ip::make_address(rendezvous_.address, error);
  std::string problem;
  if (rendezvous_.rank > 0) {
    for (const RankEndpoint& endpoint : endpoints_of_first(problem)) {
      asio::ip::udp::socket socket(context_);  // sends nothing
      socket.connect({endpoint.address(), endpoint.port()}, error);
      if (!error) own = socket.local_endpoint(error).address();
      if (!error) break;
    }
  }
  return error || own.is_loopback() ? asio::ip::address() : own;
}

void SocketRendezvous::accept_peers(RankGate::Acceptor acceptor) {
  const auto enter = [this](const IntroducedRank& rank, RankSocket socket) {
    if (rank.rank <= rendezvous_.rank) return;
    const auto i = static_cast<std::size_t>(rank.rank);
    if (rendezvous_.rank == 0) addresses_[i] = rank.text;
    sockets_[i] = std::move(socket);
  };
  gate_ = std::make_shared<RankGate>(std::move(acceptor), identity(""), enter);
  gate_->open();
}

void SocketRendezvous::wait_for_peers() {
  context_.restart();
  for (int rank = rendezvous_.rank + 1; rank < rendezvous_.size; ++rank) {
    while (!sockets_[static_cast<std::size_t>(rank)].is_open()) {
      if (Clock::now() >= end_) throw_not_connected(concat("rank ", rank, " has not connected"));
      context_.run_one_until(end_);
    }
  }
  gate_->close();
  context_.restart();
  context_.poll();  // rejects waiting callers
}

void SocketRendezvous::exchange_addresses() {
  if (rendezvous_.rank > 0) return receive_addresses();
  for (int rank = 1; rank < rendezvous_.size; ++rank) {
    RankSocket& socket = sockets_[static_cast<std::size_t>(rank)];
    const auto end = std::min(end_, Clock::now() + 2s);
    const std::string problem =
        run_task(context_, socket, end, send_text(socket, join(addresses_, "\n")));
    if (!problem.empty()) throw_not_connected(concat("rank ", rank, " has ended: ", problem));
  }
}

void SocketRendezvous::receive_addresses() {
  std::string table;
  const std::string problem =
      run_task(context_, sockets_.front(), end_, receive_text(sockets_.front(), table));
  if (!problem.empty()) throw_not_connected("rank 0 has ended: " + problem);
  std::istringstream lines(table);
  for (std::string& addresses : addresses_) std::getline(lines, addresses);
}

std::vector<RankEndpoint> SocketRendezvous::endpoints_of_first(std::string& problem) {
  if (rendezvous_.is_one_machine)
    return {{asio::ip::address_v4::loopback(), rendezvous_.port},
            {asio::ip::address_v6::loopback(), rendezvous_.port}};
  boost::system::error_code error;
  tcp::resolver resolver(context_);
  std::vector<RankEndpoint> endpoints;
  for (const auto& found :
       resolver.resolve(rendezvous_.address, std::to_string(rendezvous_.port), error))
    endpoints.push_back(found.endpoint());
  if (error) problem = error.message();
  return endpoints;
}

/// Connects to rank 0, which may not have started yet.
void SocketRendezvous::connect_to_first(const std::string& own_addresses) {
  std::string problem;
  while (Clock::now() < end_) {
    secret_ = rendezvous_.secret();  // rank 0 may not have published it yet
    const auto endpoints = endpoints_of_first(problem);
    if (secret_.empty()) {
      problem =
          concat("it has not written the job's secret; all ranks need the same run folder, or ",
                 kSecretVariable);
    } else if (!endpoints.empty()) {
      RankCall call = call_rank(endpoints, identity(own_addresses), context_, end_);
      sockets_.front() = std::move(call.socket);
      problem = call.problem;
      if (problem.empty() && call.answer.rank == 0) return;
    }
    std::this_thread::sleep_for(kRetryInterval);
  }
  throw_not_connected(
      concat("cannot reach rank 0: it does not answer, or belongs to another job (", problem, ")"));
}

void SocketRendezvous::reach(int rank) {
  const auto i = static_cast<std::size_t>(rank);
  for (;;) {
    RankCall call = call_rank(endpoints_of(addresses_[i]), identity(""), context_, end_);
    if (call.problem.empty() && call.answer.rank == rank) {
      sockets_[i] = std::move(call.socket);
      return;
    }
    if (Clock::now() >= end_)
      throw_not_connected(concat("rank ", rank, " does not answer: ", call.problem));
    std::this_thread::sleep_for(kRetryInterval);
  }
}

/// Maximum size of a part of a message. On a slow link, each part counts as progress.
constexpr std::size_t kMaxPiece = std::size_t{1} << 26;

/// Minimum size of a message that the receiver copies from the sender's memory, if permitted: one
/// copy instead of two through the kernel.
constexpr std::size_t kMinCopied = std::size_t{1} << 15;

/// Message that tells another rank of this machine which memory to copy.
struct RankMemory {
  pid_t process = 0;
  const std::uint64_t* sample = nullptr;
  std::uint64_t value = 0;  // value of the sample
};

/// Returns false if the kernel does not permit reading the other process's memory.
bool copy_from(pid_t process, const void* from, void* to, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(kMaxPiece, bytes - done);
    const iovec own{static_cast<char*>(to) + done, piece};
    const iovec theirs{static_cast<char*>(const_cast<void*>(from)) + done, piece};
    const ssize_t got = ::process_vm_readv(process, &own, 1, &theirs, 1, 0);
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
    count_progress();
  }
  return true;
}

/// One direction of a connection, with its pieces in order.
struct Lane {
  struct Piece {
    char* data;
    std::size_t bytes;
  };
  std::deque<Piece> pieces;
  void add(const void* data, std::size_t bytes) {
    auto* const begin = const_cast<char*>(static_cast<const char*>(data));
    for (std::size_t at = 0; at < bytes; at += kMaxPiece)
      pieces.push_back({begin + at, std::min(kMaxPiece, bytes - at)});
  }
};

class SocketCommunicator final : public HostCommunicator {
 public:
  explicit SocketCommunicator(const RankRendezvous& rendezvous)
      : HostCommunicator(rendezvous.rank, rendezvous.size),
        sockets_(SocketRendezvous(rendezvous, context_).connect()),
        out_(sockets_.size()),
        in_(sockets_.size()),
        reads_(sockets_.size()),
        is_read_(sockets_.size()) {
    if (rendezvous.is_one_machine) agree_on_copies();
  }
  const char* name() const override { return "sockets"; }

  void abort(const std::string& reason) override {
    if (!reason.empty())
      std::fprintf(stderr, "%s\n",
                   concat("rank ", rank(), " on ", host_name(), " gave up: ", reason).c_str());
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
    char done = 0;  // the sender keeps its data until it receives this
    for (std::size_t i = 0; i < received.size(); ++i) {
      const auto& [peer, data, bytes] = received[i];
      if (!is_copied_by(reads_, peer, bytes)) continue;
      if (!copy_from(memory(peer).process, theirs[i], data, bytes))
        mark_lost(peer, std::strerror(errno));
      if (!lost_.empty()) throw RankLost(lost_);
      lane(out_, peer).add(&done, 1);
    }
    for (const auto& [peer, data, bytes] : sent)
      if (is_copied_by(is_read_, peer, bytes)) lane(in_, peer).add(&done_, 1);
    run_lanes();
  }

 private:
  /// Each rank tries to read a number in every other rank's memory, and reports the result.
  void agree_on_copies() {
    ::prctl(PR_SET_PTRACER, ::getppid());  // permits the launcher's processes, if Yama restricts it
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
    return bytes >= kMinCopied && readers[static_cast<std::size_t>(peer)] != 0;
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
                        if (!continues(error, peer, out_)) return;
                        send_next(peer);
                      });
  }

  void receive_next(int peer) {
    if (lane(in_, peer).pieces.empty()) return;
    const Lane::Piece piece = lane(in_, peer).pieces.front();
    asio::async_read(socket(peer), asio::buffer(piece.data, piece.bytes),
                     [this, peer](const auto& error, std::size_t) {
                       if (!continues(error, peer, in_)) return;
                       receive_next(peer);
                     });
  }

  /// Returns whether the exchange continues. It ends with the first lost rank.
  bool continues(const boost::system::error_code& error, int peer, std::vector<Lane>& lanes) {
    if (!lost_.empty()) return false;
    if (!error) {
      lane(lanes, peer).pieces.pop_front();
      count_progress();
      return true;
    }
    mark_lost(peer, error.message());
    return false;
  }

  void mark_lost(int peer, const std::string& reason) {
    lost_ = concat("rank ", peer, " has ended (", reason, "), and rank ", rank(), " needs it");
    boost::system::error_code ignored;
    for (RankSocket& one : sockets_) one.close(ignored);
  }

  asio::io_context context_;  // outlives its sockets
  std::vector<RankSocket> sockets_;
  std::vector<Lane> out_, in_;         // indexed by peer
  std::vector<char> reads_, is_read_;  // by peer: whether one copies from the other's memory
  std::vector<RankMemory> memories_;   // indexed by peer
  char done_ = 0;
  std::string lost_;  // reason
};

}  // namespace

std::unique_ptr<Communicator> connect_by_sockets(const RankRendezvous& rendezvous) {
  return std::make_unique<SocketCommunicator>(rendezvous);
}

}  // namespace hybrid_trainer
