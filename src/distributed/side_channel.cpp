#include "src/distributed/side_channel.h"

#include <algorithm>

namespace hybrid_trainer {

namespace asio = boost::asio;

bool is_sound(const SideMessage& message, int peer, int ranks) {
  const bool ends = std::ranges::find(message.reason, '\0') != message.reason.end();
  if (!ends || message.kind > SideMessage::Kind::kLost) return false;
  if (message.kind != SideMessage::Kind::kLost) return message.rank == peer;
  return message.rank >= kLauncherLost && message.rank < ranks;
}

void SideConnection::start() {
  boost::system::error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
  receive();
}

void SideConnection::receive() {
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

void SideConnection::send(const SideMessage& message) {
  boost::system::error_code ignored;  // its end is told where it is read
  socket_.send(asio::buffer(&message, sizeof message), 0, ignored);
}

void SideConnection::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace hybrid_trainer
