#pragma once

#include <boost/asio.hpp>
#include <string>

namespace hybrid_trainer {

using RankSocket = boost::asio::ip::tcp::socket;

/// How a rank introduces itself over a new connection.
struct RankIdentity {
  std::string secret;   // of the job; never sent
  std::string purpose;  // connections for something else, or of another job, have another
  int rank = 0, size = 1;
  std::string text{};  // told together with the rank
};

/// What the other side has proved to be.
struct IntroducedRank {
  int rank = -1;
  std::string text;
};

// Who is called sends a random number. The caller answers with one of its own and with a hash of
// both, its rank and text under the secret; then who is called does the same. So each side proves
// that it knows the secret, and nobody hears anything of it, nor what would help later. What is
// read is checked before it is used. Both throw boost::system::system_error where the connection
// ends, and with errc::permission_denied where the other side is no rank of this job.

/// The caller's side, up to the welcome.
boost::asio::awaitable<IntroducedRank> introduce(RankSocket& socket, const RankIdentity& mine);
/// The other side, up to the caller's proof; welcome() then ends it.
struct Challenged {
  IntroducedRank caller;
  std::string numbers;  // both sides'
};
boost::asio::awaitable<Challenged> challenge(RankSocket& socket, const RankIdentity& mine);
boost::asio::awaitable<void> welcome(RankSocket& socket, const RankIdentity& mine,
                                     const Challenged& challenged);

}  // namespace hybrid_trainer
