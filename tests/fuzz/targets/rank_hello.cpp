#include <sys/socket.h>
#include <unistd.h>
#include <cstring>

#include "src/distributed/rank_connection.h"
#include "tests/fuzz/fuzz_target.h"

namespace hybrid_trainer {

namespace {

namespace asio = boost::asio;

/// Runs one side of the handshake with a peer that sends `bytes` and ends the connection.
template <class Side>
void hear(std::string_view bytes, const Side& side) {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "no socket pair");
  asio::io_context context;
  RankSocket socket(context);
  socket.assign(asio::ip::tcp::v4(), ends[0]);
  [[maybe_unused]] const auto sent = ::send(ends[1], bytes.data(), bytes.size(), MSG_NOSIGNAL);
  ::shutdown(ends[1], SHUT_WR);
  run_task(context, socket, Clock::now() + std::chrono::seconds(5), side(socket));
  ::close(ends[1]);
}

}  // namespace

void read_input(std::string_view input) {
  const RankIdentity mine{.secret = "secret", .purpose = "meeting", .rank = 1, .size = 4};
  hear(input, [&](RankSocket& socket) -> asio::awaitable<void> {
    const ChallengeResult result = co_await challenge(socket, mine);
    co_await welcome(socket, mine, result);
  });
  hear(input,
       [&](RankSocket& socket) -> asio::awaitable<void> { co_await introduce(socket, mine); });
  endpoints_of(std::string(input));
  WatchMessage message;
  std::memcpy(&message, input.data(), std::min(input.size(), sizeof message));
  for (int peer = 0; peer < 4; ++peer) is_sound(message, peer, 4);
}

}  // namespace hybrid_trainer
