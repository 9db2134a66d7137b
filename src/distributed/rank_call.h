#pragma once

#include <boost/asio.hpp>
#include <string>
#include <vector>

#include "hybrid_trainer/core/clock.h"
#include "src/distributed/rank_handshake.h"

namespace hybrid_trainer {

using RankEndpoint = boost::asio::ip::tcp::endpoint;

/// Where a rank that listens at this port may be reached: "PORT ADDRESS ADDRESS …", with each IPv4
/// and IPv6 address of this machine, or with the one that is given.
std::string addresses_text(std::uint16_t port, const std::vector<std::string>& addresses);
/// Of all of this machine's interfaces, this machine's own (loopback) first.
std::vector<std::string> own_addresses();
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
