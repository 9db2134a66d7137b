#include "src/distributed/rank_handshake.h"

#include "hybrid_trainer/core/error.h"
#include "src/distributed/hmac.h"

namespace hybrid_trainer {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::use_awaitable;

constexpr std::size_t kNumberBytes = 32;
constexpr std::uint32_t kLongestText = 1 << 16;
constexpr std::array<char, 8> kSign = {'h', 'y', 'b', 'r', 'i', 'd', '/', '2'};

struct Opening {
  std::array<char, 8> sign = kSign;
  std::array<char, kNumberBytes> number{};
};

/// The text follows it.
struct Proof {
  std::array<char, kNumberBytes> number{};
  std::int32_t rank = 0;
  std::uint32_t text_bytes = 0;
  Digest digest{};
};

[[noreturn]] void turn_away() {
  throw boost::system::system_error(make_error_code(boost::system::errc::permission_denied));
}

std::array<char, kNumberBytes> drawn_number() {
  std::array<char, kNumberBytes> number{};
  random_bytes(number.size()).copy(number.data(), number.size());
  return number;
}

std::string text_of(const std::array<char, kNumberBytes>& number) {
  return {number.begin(), number.end()};
}

/// Each part has its length before it, so that no two sets of parts are hashed alike.
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

/// Of both numbers the second one may only be known from the proof itself.
awaitable<Challenged> check_proof(RankSocket& socket, const RankIdentity& mine, const char* side,
                                  const std::string& known_numbers) {
  Proof proof;
  co_await asio::async_read(socket, asio::buffer(&proof, sizeof proof), use_awaitable);
  if (proof.text_bytes > kLongestText || proof.rank < 0 || proof.rank >= mine.size) turn_away();
  Challenged read{.caller = {.rank = proof.rank, .text = std::string(proof.text_bytes, '\0')},
                  .numbers = known_numbers};
  if (known_numbers.size() == kNumberBytes) read.numbers += text_of(proof.number);
  co_await asio::async_read(socket, asio::buffer(read.caller.text), use_awaitable);
  const Digest wanted = digest_of(mine, side, read.numbers, proof.rank, read.caller.text);
  if (!same_digest(wanted, proof.digest)) turn_away();
  co_return read;
}

}  // namespace

awaitable<IntroducedRank> introduce(RankSocket& socket, const RankIdentity& mine) {
  Opening opening;
  co_await asio::async_read(socket, asio::buffer(&opening, sizeof opening), use_awaitable);
  if (opening.sign != kSign) turn_away();
  const auto number = drawn_number();
  const std::string numbers = text_of(opening.number) + text_of(number);
  co_await prove(socket, mine, "caller", numbers, number);
  Challenged read = co_await check_proof(socket, mine, "called", numbers);
  co_return std::move(read.caller);
}

awaitable<Challenged> challenge(RankSocket& socket, const RankIdentity& mine) {
  const Opening opening{.number = drawn_number()};
  co_await asio::async_write(socket, asio::buffer(&opening, sizeof opening), use_awaitable);
  co_return co_await check_proof(socket, mine, "caller", text_of(opening.number));
}

awaitable<void> welcome(RankSocket& socket, const RankIdentity& mine,
                        const Challenged& challenged) {
  co_await prove(socket, mine, "called", challenged.numbers, {});
}

}  // namespace hybrid_trainer
