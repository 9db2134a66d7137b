#include "src/distributed/rank_gate.h"

#include <chrono>
#include <utility>

namespace hybrid_trainer {

namespace asio = boost::asio;
using asio::use_awaitable;
using asio::ip::tcp;
using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 2s;
/// Before the next try where no connection can be accepted, as without free descriptors.
constexpr auto kPause = 50ms;

}  // namespace

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
    self->turn_oldest_away();
    self->pause_.expires_after(kPause);
    co_await self->pause_.async_wait(asio::redirect_error(use_awaitable, error));
  }
}

void RankGate::turn_oldest_away() {
  if (callers_.empty()) return;
  callers_.front()->close();
  callers_.pop_front();
}

void RankGate::receive(RankSocket socket) {
  if (callers_.size() == kMostCallers) turn_oldest_away();
  const auto caller = std::make_shared<Caller>(std::move(socket));
  callers_.push_back(caller);
  caller->deadline.expires_after(kPatience);
  caller->deadline.async_wait([caller](const boost::system::error_code& error) {
    if (!error) caller->close();
  });
  asio::co_spawn(acceptor_.get_executor(), let_in(shared_from_this(), caller), asio::detached);
}

asio::awaitable<void> RankGate::let_in(std::shared_ptr<RankGate> self,
                                       std::shared_ptr<Caller> caller) {
  try {
    Challenged challenged = co_await challenge(caller->socket, self->mine_);
    co_await welcome(caller->socket, self->mine_, challenged);
    if (self->acceptor_.is_open() && caller->socket.is_open())
      self->enter_(std::move(challenged.caller), std::move(caller->socket));
  } catch (const boost::system::system_error&) {  // a stranger, or one that ended
  }
  caller->close();
  self->callers_.remove(caller);
}

RankGate::Acceptor listen_at(asio::io_context& context, Reach reach, std::uint16_t port,
                             const asio::ip::address& address) {
  RankGate::Acceptor acceptor(context);
  boost::system::error_code error;
  if (reach == Reach::kThisMachine) {
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

}  // namespace hybrid_trainer
