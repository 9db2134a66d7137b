#include "src/distributed/rank_call.h"

#include <ifaddrs.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

/// Of an interface; "" where another machine cannot use it.
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
  return found.is_link_local() ? "" : found.to_string();  // its scope is of this machine alone
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
      const bool is_stranger = error.code() == boost::system::errc::permission_denied;
      outcome = is_stranger ? "another program answers there, or a rank of another job"
                            : error.code().message();
    }
  });
  context.restart();
  while (!outcome && Clock::now() < end) context.run_one_until(end);
  if (outcome) return *outcome;
  boost::system::error_code ignored;
  socket.close(ignored);  // which ends the task
  while (!outcome) context.run_one();
  return "no answer";
}

RankCall call_rank(const std::vector<RankEndpoint>& endpoints, const RankIdentity& mine,
                   asio::io_context& context, Clock::time_point end) {
  constexpr std::chrono::seconds kPatience{2};
  RankCall result{.socket = RankSocket(context), .problem = "it has sent no address"};
  for (const RankEndpoint& endpoint : endpoints) {
    RankSocket socket(context);
    result.problem = run_task(context, socket, std::min(end, Clock::now() + kPatience),
                              call(socket, endpoint, mine, result.answer));
    result.socket = std::move(socket);
    if (result.problem.empty() || Clock::now() >= end) break;
  }
  return result;
}

}  // namespace hybrid_trainer
