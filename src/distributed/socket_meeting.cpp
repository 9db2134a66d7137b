#include "src/distributed/socket_meeting.h"

#include <array>
#include <thread>

#include "hybrid_trainer/core/error.h"
#include "src/distributed/side_channel.h"

namespace hybrid_trainer {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;

/// For one message of a stranger, and between two tries to reach rank 0.
constexpr auto kForOneMessage = 2s;
constexpr auto kBetweenTries = 100ms;

}  // namespace

/// What both sides of a connection say first.
struct SocketMeeting::Greeting {
  static constexpr std::uint64_t kSign = 0x6b6e61722d746821;
  std::uint64_t sign = kSign;
  std::int32_t rank = 0, size = 0;
  std::array<char, 128> job{};
  std::array<char, 512> addresses{};  // side_channel.h's addresses_text
};

SocketMeeting::SocketMeeting(const RankMeeting& meeting, asio::io_context& context)
    : meeting_(meeting),
      context_(context),
      end_(Clock::now() + meeting.limit),
      addresses_(static_cast<std::size_t>(meeting.size)) {
  for (int rank = 0; rank < meeting.size; ++rank) sockets_.emplace_back(context);
}

std::vector<RankSocket> SocketMeeting::connect() {
  Acceptor acceptor = open(meeting_.rank == 0 ? meeting_.port : std::uint16_t{0});
  own_addresses_ = addresses_text(0, acceptor.local_endpoint().port());
  if (meeting_.rank > 0) reach_first();
  if (meeting_.rank == 0) accept_others(acceptor, 1);
  exchange_addresses();
  for (int rank = 1; rank < meeting_.rank; ++rank) {
    std::uint64_t unused = 0;
    const auto endpoints = endpoints_of(addresses_[static_cast<std::size_t>(rank)], unused);
    if (!reach(endpoints, rank)) throw_not_met(concat("rank ", rank, " does not answer"));
  }
  if (meeting_.rank > 0) accept_others(acceptor, meeting_.rank + 1);
  boost::system::error_code ignored;
  for (RankSocket& socket : sockets_) socket.set_option(tcp::no_delay(true), ignored);
  return std::move(sockets_);
}

SocketMeeting::Acceptor SocketMeeting::open(std::uint16_t port) {
  try {
    return {context_, tcp::endpoint(tcp::v4(), port)};
  } catch (const boost::system::system_error& error) {
    throw DeviceError(concat("rank ", meeting_.rank, " cannot open port ", port, " of ",
                             asio::ip::host_name(),
                             ", where the ranks meet: ", error.code().message(),
                             "; choose a free one by MASTER_PORT, for torchrun --master-port"));
  }
}

SocketMeeting::Greeting SocketMeeting::greeting() const {
  Greeting greeting{.rank = meeting_.rank, .size = meeting_.size};
  meeting_.job.copy(greeting.job.data(), greeting.job.size() - 1);
  own_addresses_.copy(greeting.addresses.data(), greeting.addresses.size() - 1);
  return greeting;
}

bool SocketMeeting::is_of_this_job(const Greeting& said) const {
  return said.sign == Greeting::kSign && said.size == meeting_.size && said.rank >= 0 &&
         said.rank < meeting_.size && said.job == greeting().job;
}

/// Those from `first` on come here; strangers are turned away.
void SocketMeeting::accept_others(Acceptor& acceptor, int first) {
  const auto is_missing = [&](int rank) {
    return !sockets_[static_cast<std::size_t>(rank)].is_open();
  };
  for (int rank = first; rank < meeting_.size; ++rank) {
    while (is_missing(rank)) {
      RankSocket socket(context_);
      const auto error =
          finish(end_, [&](auto done) { acceptor.async_accept(socket, std::move(done)); });
      if (error) throw_not_met(concat("rank ", rank, " has not come"));
      Greeting said;
      if (!read(socket, asio::buffer(&said, sizeof said)) || !is_of_this_job(said)) continue;
      if (said.rank < first || !is_missing(said.rank)) continue;
      const Greeting mine = greeting();
      if (!write(socket, asio::buffer(&mine, sizeof mine))) continue;
      const auto i = static_cast<std::size_t>(said.rank);
      addresses_[i] = said.addresses.data();
      sockets_[i] = std::move(socket);
    }
  }
}

/// From rank 0 to all.
void SocketMeeting::exchange_addresses() {
  using Text = std::array<char, sizeof(Greeting::addresses)>;
  std::vector<Text> table(addresses_.size());
  const auto whole = asio::buffer(table.data(), table.size() * sizeof(Text));
  if (meeting_.rank > 0) {
    if (!read(sockets_.front(), whole)) throw_not_met("rank 0 has ended");
    for (std::size_t rank = 0; rank < table.size(); ++rank) addresses_[rank] = table[rank].data();
    return;
  }
  for (std::size_t rank = 0; rank < table.size(); ++rank)
    addresses_[rank].copy(table[rank].data(), sizeof(Text) - 1);
  for (std::size_t rank = 1; rank < table.size(); ++rank) {
    if (!write(sockets_[rank], whole)) throw_not_met(concat("rank ", rank, " has ended"));
  }
}

/// Which may not have begun yet.
void SocketMeeting::reach_first() {
  std::string problem = "it does not answer, or is of another job";
  while (Clock::now() < end_) {
    boost::system::error_code error;
    tcp::resolver resolver(context_);
    std::vector<Endpoint> endpoints;
    for (const auto& found :
         resolver.resolve(tcp::v4(), meeting_.address, std::to_string(meeting_.port), error))
      endpoints.push_back(found.endpoint());
    if (error) problem = error.message();
    if (reach(endpoints, 0)) return;
    std::this_thread::sleep_for(kBetweenTries);
  }
  throw_not_met(concat("rank 0 is not reached: ", problem));
}

bool SocketMeeting::reach(const std::vector<Endpoint>& endpoints, int rank) {
  for (const Endpoint& endpoint : endpoints) {
    RankSocket socket(context_);
    const auto error = finish(std::min(end_, Clock::now() + kForOneMessage),
                              [&](auto done) { socket.async_connect(endpoint, std::move(done)); });
    if (error || !greet(socket, rank)) continue;
    sockets_[static_cast<std::size_t>(rank)] = std::move(socket);
    return true;
  }
  return false;
}

bool SocketMeeting::greet(RankSocket& socket, int rank) {
  const Greeting mine = greeting();
  Greeting said;
  return write(socket, asio::buffer(&mine, sizeof mine)) &&
         read(socket, asio::buffer(&said, sizeof said)) && is_of_this_job(said) &&
         said.rank == rank;
}

/// Runs what begin(done) begins until it has called done(error), or the time is over.
template <class Begin>
boost::system::error_code SocketMeeting::finish(Clock::time_point end, const Begin& begin) {
  std::optional<boost::system::error_code> result;
  asio::cancellation_signal over;
  begin(asio::bind_cancellation_slot(
      over.slot(), [&](const boost::system::error_code& error, auto...) { result = error; }));
  context_.restart();
  context_.run_until(end);
  if (!result) {
    over.emit(asio::cancellation_type::terminal);
    context_.restart();
    context_.run();
    return asio::error::timed_out;
  }
  return *result;
}

bool SocketMeeting::read(RankSocket& socket, asio::mutable_buffer buffer) {
  const auto wait =
      meeting_.rank > 0 && &socket == &sockets_.front() ? end_ : Clock::now() + kForOneMessage;
  return !finish(std::min(end_, wait),
                 [&](auto done) { asio::async_read(socket, buffer, std::move(done)); });
}

bool SocketMeeting::write(RankSocket& socket, asio::const_buffer buffer) {
  return !finish(std::min(end_, Clock::now() + kForOneMessage),
                 [&](auto done) { asio::async_write(socket, buffer, std::move(done)); });
}

void SocketMeeting::throw_not_met(const std::string& what) const {
  throw DeviceError(concat("rank ", meeting_.rank, " of ", meeting_.size, " met not all others at ",
                           meeting_.address, " port ", meeting_.port, " within ",
                           static_cast<double>(meeting_.limit.count()) / 1000, " s: ", what));
}

}  // namespace hybrid_trainer
