#include "src/distributed/rank_connection.h"

#include <ifaddrs.h>
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "hybrid_trainer/core/error.h"
#include "src/core/sha256.h"

namespace hybrid_trainer {

namespace asio = boost::asio;

namespace {

using asio::awaitable;
using asio::use_awaitable;
using asio::ip::tcp;
using namespace std::chrono_literals;

/// Limit for a rank to answer a call, or a caller to authenticate.
constexpr auto kPatience = 2s;
/// Pause before the next try if accepting fails, for example without free descriptors.
constexpr auto kPause = 50ms;

// Handshake: The called side sends a random number. The caller answers with its own random number,
// rank and text, and their HMAC (both numbers, rank, text) under the secret. The called side then
// answers in the same way. The secret is not revealed, and a recorded handshake cannot be replayed.
// Both sides throw boost::system::system_error if the connection ends, with errc::permission_denied
// if the other side is not a rank of this job.

constexpr std::size_t kNumberBytes = 32;
constexpr std::uint32_t kLongestText = 1 << 16;
constexpr std::array<char, 8> kSign = {'h', 'y', 'b', 'r', 'i', 'd', '/', '2'};

struct Opening {
  std::array<char, 8> sign = kSign;
  std::array<char, kNumberBytes> number{};
};

/// Header of a proof; the text follows.
struct Proof {
  std::array<char, kNumberBytes> number{};
  std::int32_t rank = 0;
  std::uint32_t text_bytes = 0;
  Digest digest{};
};

[[noreturn]] void reject_peer() {
  throw boost::system::system_error(make_error_code(boost::system::errc::permission_denied));
}

std::array<char, kNumberBytes> random_nonce() {
  std::array<char, kNumberBytes> number{};
  random_bytes(number.size()).copy(number.data(), number.size());
  return number;
}

std::string text_of(const std::array<char, kNumberBytes>& number) {
  return {number.begin(), number.end()};
}

/// Returns the HMAC of all arguments and their lengths, so that different parts never coincide.
Digest digest_of(const RankIdentity& mine, const char* side, const std::string& numbers, int rank,
                 const std::string& text) {
  std::string message;
  for (const std::string& part : {std::string("hybrid rank 2"), mine.purpose, std::string(side),
                                  numbers, concat(rank), concat(mine.size), text})
    message += concat(part.size(), ":", part);
  return hmac_sha256(mine.secret, message);
}

awaitable<void> prove(RankSocket& socket, const RankIdentity& mine, const char* side,
                      const std::string& numbers, const std::array<char, kNumberBytes>& number) {
  const Proof proof{.number = number,
                    .rank = mine.rank,
                    .text_bytes = static_cast<std::uint32_t>(mine.text.size()),
                    .digest = digest_of(mine, side, numbers, mine.rank, mine.text)};
  std::string bytes(reinterpret_cast<const char*>(&proof), sizeof proof);
  bytes += mine.text;
  co_await asio::async_write(socket, asio::buffer(bytes), use_awaitable);
}

struct CheckedProof {
  IntroducedRank caller;
  std::string numbers;  // random numbers of both sides
};

/// Checks a proof. The second of the two random numbers may be known only from the proof itself.
awaitable<CheckedProof> check_proof(RankSocket& socket, const RankIdentity& mine, const char* side,
                                    const std::string& known_numbers) {
  Proof proof;
  co_await asio::async_read(socket, asio::buffer(&proof, sizeof proof), use_awaitable);
  if (proof.text_bytes > kLongestText || proof.rank < 0 || proof.rank >= mine.size) reject_peer();
  CheckedProof read{
      .caller = IntroducedRank{.rank = proof.rank, .text = std::string(proof.text_bytes, '\0')},
      .numbers = known_numbers};
  if (known_numbers.size() == kNumberBytes) read.numbers += text_of(proof.number);
  co_await asio::async_read(socket, asio::buffer(read.caller.text), use_awaitable);
  const Digest wanted = digest_of(mine, side, read.numbers, proof.rank, read.caller.text);
  if (!same_digest(wanted, proof.digest)) reject_peer();
  co_return read;
}

/// Runs the handshake on the caller's side.
awaitable<IntroducedRank> introduce(RankSocket& socket, const RankIdentity& mine) {
  Opening opening;
  co_await asio::async_read(socket, asio::buffer(&opening, sizeof opening), use_awaitable);
  if (opening.sign != kSign) reject_peer();
  const auto number = random_nonce();
  const std::string numbers = text_of(opening.number) + text_of(number);
  co_await prove(socket, mine, "caller", numbers, number);
  CheckedProof read = co_await check_proof(socket, mine, "called", numbers);
  co_return std::move(read.caller);
}

/// Runs the handshake on the called side.
awaitable<IntroducedRank> challenge(RankSocket& socket, const RankIdentity& mine) {
  const Opening opening{.number = random_nonce()};
  co_await asio::async_write(socket, asio::buffer(&opening, sizeof opening), use_awaitable);
  CheckedProof read = co_await check_proof(socket, mine, "caller", text_of(opening.number));
  co_await prove(socket, mine, "called", read.numbers, {});
  co_return std::move(read.caller);
}

/// Returns the text of an interface's address, or "" if other machines cannot use it.
std::string text_of_address(const sockaddr* address) {
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    return asio::ip::address_v4(ntohl(v4.sin_addr.s_addr)).to_string();
  }
  if (address->sa_family != AF_INET6) return "";
  sockaddr_in6 v6{};
  std::memcpy(&v6, address, sizeof v6);
  asio::ip::address_v6::bytes_type bytes{};
  std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
  const asio::ip::address_v6 found(bytes);
  return found.is_link_local() ? "" : found.to_string();  // its scope is valid only on this machine
}

asio::awaitable<void> call(RankSocket& socket, RankEndpoint to, const RankIdentity& mine,
                           IntroducedRank& answer) {
  co_await socket.async_connect(to, asio::use_awaitable);
  answer = co_await introduce(socket, mine);
}

}  // namespace

std::string own_network() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::error_code ignored;
  const auto network = std::filesystem::read_symlink("/proc/self/ns/net", ignored);
  return concat(boot, "/", network.string());
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> found{"127.0.0.1"};
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    const std::string text = text_of_address(one->ifa_addr);
    if (!text.empty() && std::ranges::find(found, text) == found.end()) found.push_back(text);
  }
  ::freeifaddrs(all);
  return found;
}

std::string addresses_text(std::uint16_t port, const std::vector<std::string>& addresses) {
  return concat(port, " ", own_network(), " ", join(addresses, " "));
}

std::vector<RankEndpoint> endpoints_of(const std::string& addresses_text) {
  std::istringstream text(addresses_text);
  std::uint16_t port = 0;
  std::string network;
  text >> port >> network;
  const bool is_own = network == own_network();
  std::vector<RankEndpoint> endpoints;
  for (std::string word; text >> word;) {
    boost::system::error_code error;
    const auto address = asio::ip::make_address(word, error);
    if (!error && (is_own || !address.is_loopback())) endpoints.emplace_back(address, port);
  }
  return endpoints;
}

std::string run_task(asio::io_context& context, RankSocket& socket, Clock::time_point end,
                     asio::awaitable<void> task) {
  if (Clock::now() >= end) return "no answer";
  std::optional<std::string> outcome;
  asio::co_spawn(context, std::move(task), [&](const std::exception_ptr& failure) {
    outcome = "";
    try {
      if (failure) std::rethrow_exception(failure);
    } catch (const boost::system::system_error& error) {
      const bool is_foreign = error.code() == boost::system::errc::permission_denied;
      outcome = is_foreign ? "another program or a rank of another job answers at this port"
                           : error.code().message();
    }
  });
  context.restart();
  while (!outcome && Clock::now() < end) context.run_one_until(end);
  if (outcome) return *outcome;
  boost::system::error_code ignored;
  socket.close(ignored);  // ends the task
  while (!outcome) context.run_one();
  return "no answer";
}

RankCall call_rank(const std::vector<RankEndpoint>& endpoints, const RankIdentity& mine,
                   asio::io_context& context, Clock::time_point end) {
  RankCall result{.socket = RankSocket(context), .problem = "it has not sent its address"};
  for (const RankEndpoint& endpoint : endpoints) {
    RankSocket socket(context);
    result.problem = run_task(context, socket, std::min(end, Clock::now() + kPatience),
                              call(socket, endpoint, mine, result.answer));
    result.socket = std::move(socket);
    if (result.problem.empty() || Clock::now() >= end) break;
  }
  return result;
}

struct RankGate::Caller {
  RankSocket socket;
  asio::steady_timer deadline;
  explicit Caller(RankSocket accepted)
      : socket(std::move(accepted)), deadline(socket.get_executor()) {}
  void close() {
    boost::system::error_code ignored;
    socket.close(ignored);
    deadline.cancel();
  }
};

RankGate::RankGate(Acceptor acceptor, RankIdentity mine, Enter enter)
    : acceptor_(std::move(acceptor)),
      mine_(std::move(mine)),
      enter_(std::move(enter)),
      pause_(acceptor_.get_executor()) {}

void RankGate::open() {
  asio::co_spawn(acceptor_.get_executor(), accept(shared_from_this()), asio::detached);
}

void RankGate::close() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  for (const auto& caller : callers_) caller->close();
}

asio::awaitable<void> RankGate::accept(std::shared_ptr<RankGate> self) {
  while (self->acceptor_.is_open()) {
    boost::system::error_code error;
    RankSocket socket =
        co_await self->acceptor_.async_accept(asio::redirect_error(use_awaitable, error));
    if (!self->acceptor_.is_open()) co_return;
    if (!error) {
      self->receive(std::move(socket));
      continue;
    }
    self->reject_oldest();
    self->pause_.expires_after(kPause);
    co_await self->pause_.async_wait(asio::redirect_error(use_awaitable, error));
  }
}

void RankGate::reject_oldest() {
  if (callers_.empty()) return;
  callers_.front()->close();
  callers_.pop_front();
}

void RankGate::receive(RankSocket socket) {
  if (callers_.size() == kMaxCallers) reject_oldest();
  const auto caller = std::make_shared<Caller>(std::move(socket));
  callers_.push_back(caller);
  caller->deadline.expires_after(kPatience);
  caller->deadline.async_wait([caller](const boost::system::error_code& error) {
    if (!error) caller->close();
  });
  asio::co_spawn(acceptor_.get_executor(), admit(shared_from_this(), caller), asio::detached);
}

asio::awaitable<void> RankGate::admit(std::shared_ptr<RankGate> self,
                                      std::shared_ptr<Caller> caller) {
  try {
    IntroducedRank introduced = co_await challenge(caller->socket, self->mine_);
    if (self->acceptor_.is_open() && caller->socket.is_open())
      self->enter_(std::move(introduced), std::move(caller->socket));
  } catch (const boost::system::system_error&) {  // not a rank, or it ended
  }
  caller->close();
  self->callers_.remove(caller);
}

RankGate::Acceptor open_acceptor(asio::io_context& context, ListenScope reach, std::uint16_t port,
                                 const asio::ip::address& address) {
  RankGate::Acceptor acceptor(context);
  boost::system::error_code error;
  if (reach == ListenScope::kThisMachine) {
    const tcp::endpoint v4(asio::ip::address_v4::loopback(), port);
    acceptor.open(tcp::v4(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(v4, error);
    if (error == boost::system::errc::address_not_available || !acceptor.is_open())
      return {context, tcp::endpoint(asio::ip::address_v6::loopback(), port)};
    if (error) throw boost::system::system_error(error);
    acceptor.listen();
    return acceptor;
  }
  if (!address.is_unspecified()) return {context, tcp::endpoint(address, port)};
  acceptor.open(tcp::v6(), error);
  if (error) return {context, tcp::endpoint(tcp::v4(), port)};  // a system without IPv6
  acceptor.set_option(asio::ip::v6_only(false));
  acceptor.set_option(tcp::acceptor::reuse_address(true));
  acceptor.bind(tcp::endpoint(tcp::v6(), port));
  acceptor.listen();
  return acceptor;
}

bool is_sound(const WatchMessage& message, int peer, int ranks) {
  const bool ends = std::ranges::find(message.reason, '\0') != message.reason.end();
  if (!ends || message.kind > WatchMessage::Kind::kLost) return false;
  if (message.kind != WatchMessage::Kind::kLost) return message.rank == peer;
  return message.rank >= kLauncherLost && message.rank < ranks;
}

void WatchConnection::start() {
  boost::system::error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
  receive();
}

void WatchConnection::receive() {
  asio::async_read(socket_, asio::buffer(&incoming_, sizeof incoming_),
                   [self = shared_from_this()](const auto& error, std::size_t) {
                     if (error == asio::error::operation_aborted) return;
                     if (error || !is_sound(self->incoming_, self->peer_, self->ranks_)) {
                       self->close();
                       self->receiver_(*self, nullptr);
                       return;
                     }
                     self->receiver_(*self, &self->incoming_);
                     self->receive();
                   });
}

void WatchConnection::send(const WatchMessage& message) {
  boost::system::error_code ignored;  // the reader reports the end
  socket_.send(asio::buffer(&message, sizeof message), 0, ignored);
}

void WatchConnection::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace hybrid_trainer
