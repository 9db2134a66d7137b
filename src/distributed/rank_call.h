#pragma once

#include <boost/asio.hpp>
#include <string>
#include <vector>

#include "hybrid_trainer/core/clock.h"
#include "src/distributed/rank_handshake.h"

namespace hybrid_trainer {

using RankEndpoint = boost::asio::ip::tcp::endpoint;

/// What no other machine, or container with a network of its own, has.
std::string own_network();
/// Where a rank that listens at this port may be reached: "PORT NETWORK ADDRESS ADDRESS …", with
/// this machine's own_network().
std::string addresses_text(std::uint16_t port, const std::vector<std::string>& addresses);
/// Of all of this machine's interfaces, this machine's own (loopback) first.
std::vector<std::string> own_addresses();
/// Loopback addresses only where the text is of this machine: at those of another one's list anybody
/// who listens here would answer.
std::vector<RankEndpoint> endpoints_of(const std::string& addresses_text);

/// Runs the task in the context until it has ended, and closes its socket at `end`. What went wrong,
/// or "".
std::string run_task(boost::asio::io_context& context, RankSocket& socket, Clock::time_point end,
                     boost::asio::awaitable<void> task);

struct RankCall {
  RankSocket socket;
  IntroducedRank answer{};
  std::string problem{};  // "" where a rank has answered
};
/// Calls the endpoints one after the other until a rank of this job answers, each for two seconds.
RankCall call_rank(const std::vector<RankEndpoint>& endpoints, const RankIdentity& mine,
                   boost::asio::io_context& context, Clock::time_point end);

}  // namespace hybrid_trainer
