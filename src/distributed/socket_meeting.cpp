#include "src/distributed/socket_meeting.h"

#include <sstream>
#include <thread>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/distributed/job_secret.h"

namespace hybrid_trainer {
namespace {

namespace asio = boost::asio;
using asio::use_awaitable;
using asio::ip::tcp;
using namespace std::chrono_literals;

constexpr auto kBetweenTries = 100ms;
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

}  // namespace

SocketMeeting::SocketMeeting(const RankMeeting& meeting, asio::io_context& context)
    : meeting_(meeting),
      context_(context),
      end_(Clock::now() + meeting.limit),
      addresses_(static_cast<std::size_t>(meeting.size)) {
  for (int rank = 0; rank < meeting.size; ++rank) sockets_.emplace_back(context);
}

std::vector<RankSocket> SocketMeeting::connect() {
  RankGate::Acceptor acceptor = open();
  const auto bound = acceptor.local_endpoint();
  const std::string own =
      addresses_text(bound.port(), bound.address().is_unspecified()
                                       ? own_addresses()
                                       : std::vector<std::string>{bound.address().to_string()});
  if (meeting_.rank == 0) {
    secret_ = meeting_.secret();
    let_others_in(std::move(acceptor));
    wait_for_others();
    exchange_addresses();
  } else {
    reach_first(own);
    let_others_in(std::move(acceptor));
    exchange_addresses();
    for (int rank = 1; rank < meeting_.rank; ++rank) reach(rank);
    wait_for_others();
  }
  boost::system::error_code ignored;
  for (RankSocket& socket : sockets_) socket.set_option(tcp::no_delay(true), ignored);
  return std::move(sockets_);
}

/// At the interface that ranks use, where that can be told.
RankGate::Acceptor SocketMeeting::open() {
  const Reach reach = meeting_.is_one_machine ? Reach::kThisMachine : Reach::kAllMachines;
  const std::uint16_t port = meeting_.rank == 0 ? meeting_.port : std::uint16_t{0};
  try {
    try {
      return listen_at(context_, reach, port, used_address());
    } catch (const boost::system::system_error& error) {
      if (error.code() != boost::system::errc::address_not_available) throw;
      return listen_at(context_, reach, port);  // it is another one's, which passes on to this
    }
  } catch (const boost::system::system_error& error) {
    throw DeviceError(concat("rank ", meeting_.rank, " cannot open port ", port, " of ",
                             asio::ip::host_name(),
                             ", where the ranks meet: ", error.code().message(),
                             "; choose a free one by MASTER_PORT, for torchrun --master-port"));
  }
}

/// Of rank 0 the one that all were told, of another one the one from which it speaks to rank 0.
/// Unspecified where that is a name, or this machine's own.
asio::ip::address SocketMeeting::used_address() {
  boost::system::error_code error;
  asio::ip::address own = asio::ip::make_address(meeting_.address, error);
  std::string problem;
  if (meeting_.rank > 0) {
    for (const RankEndpoint& endpoint : endpoints_of_first(problem)) {
      asio::ip::udp::socket socket(context_);  // sends nothing
      socket.connect({endpoint.address(), endpoint.port()}, error);
      if (!error) own = socket.local_endpoint(error).address();
      if (!error) break;
    }
  }
  return error || own.is_loopback() ? asio::ip::address() : own;
}

RankIdentity SocketMeeting::identity(const std::string& text) const {
  return {.secret = secret_,
          .purpose = "meeting of " + meeting_.job,
          .rank = meeting_.rank,
          .size = meeting_.size,
          .text = text};
}

/// Rank 0 lets all others in, another rank those after it.
void SocketMeeting::let_others_in(RankGate::Acceptor acceptor) {
  const auto enter = [this](const IntroducedRank& rank, RankSocket socket) {
    if (rank.rank <= meeting_.rank) return;
    const auto i = static_cast<std::size_t>(rank.rank);
    if (meeting_.rank == 0) addresses_[i] = rank.text;
    sockets_[i] = std::move(socket);
  };
  gate_ = std::make_shared<RankGate>(std::move(acceptor), identity(""), enter);
  gate_->open();
}

void SocketMeeting::wait_for_others() {
  context_.restart();
  for (int rank = meeting_.rank + 1; rank < meeting_.size; ++rank) {
    while (!sockets_[static_cast<std::size_t>(rank)].is_open()) {
      if (Clock::now() >= end_) throw_not_met(concat("rank ", rank, " has not come"));
      context_.run_one_until(end_);
    }
  }
  gate_->close();
  context_.restart();
  context_.poll();  // callers that wait are turned away
}

/// From rank 0 to all.
void SocketMeeting::exchange_addresses() {
  if (meeting_.rank > 0) return receive_addresses();
  for (int rank = 1; rank < meeting_.size; ++rank) {
    RankSocket& socket = sockets_[static_cast<std::size_t>(rank)];
    const auto end = std::min(end_, Clock::now() + 2s);
    const std::string problem =
        run_task(context_, socket, end, send_text(socket, join(addresses_, "\n")));
    if (!problem.empty()) throw_not_met(concat("rank ", rank, " has ended: ", problem));
  }
}

void SocketMeeting::receive_addresses() {
  std::string table;
  const std::string problem =
      run_task(context_, sockets_.front(), end_, receive_text(sockets_.front(), table));
  if (!problem.empty()) throw_not_met("rank 0 has ended: " + problem);
  std::istringstream lines(table);
  for (std::string& addresses : addresses_) std::getline(lines, addresses);
}

std::vector<RankEndpoint> SocketMeeting::endpoints_of_first(std::string& problem) {
  if (meeting_.is_one_machine)
    return {{asio::ip::address_v4::loopback(), meeting_.port},
            {asio::ip::address_v6::loopback(), meeting_.port}};
  boost::system::error_code error;
  tcp::resolver resolver(context_);
  std::vector<RankEndpoint> endpoints;
  for (const auto& found : resolver.resolve(meeting_.address, std::to_string(meeting_.port), error))
    endpoints.push_back(found.endpoint());
  if (error) problem = error.message();
  return endpoints;
}

/// Which may not have begun yet.
void SocketMeeting::reach_first(const std::string& own_addresses) {
  std::string problem;
  while (Clock::now() < end_) {
    secret_ = meeting_.secret();  // which rank 0 may not have left yet
    const auto endpoints = endpoints_of_first(problem);
    if (secret_.empty()) {
      problem = concat("it has not left the job's secret; all ranks need one run folder, or ",
                       kSecretVariable);
    } else if (!endpoints.empty()) {
      RankCall call = call_rank(endpoints, identity(own_addresses), context_, end_);
      sockets_.front() = std::move(call.socket);
      problem = call.problem;
      if (problem.empty() && call.answer.rank == 0) return;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
  throw_not_met(
      concat("rank 0 is not reached: it does not answer, or is of another job (", problem, ")"));
}

void SocketMeeting::reach(int rank) {
  const auto i = static_cast<std::size_t>(rank);
  for (;;) {
    RankCall call = call_rank(endpoints_of(addresses_[i]), identity(""), context_, end_);
    if (call.problem.empty() && call.answer.rank == rank) {
      sockets_[i] = std::move(call.socket);
      return;
    }
    if (Clock::now() >= end_)
      throw_not_met(concat("rank ", rank, " does not answer: ", call.problem));
    std::this_thread::sleep_for(kBetweenTries);
  }
}

void SocketMeeting::throw_not_met(const std::string& what) const {
  throw DeviceError(concat("rank ", meeting_.rank, " of ", meeting_.size, " met not all others at ",
                           meeting_.address, " port ", meeting_.port, " within ",
                           static_cast<double>(meeting_.limit.count()) / 1000, " s: ", what));
}

}  // namespace hybrid_trainer
