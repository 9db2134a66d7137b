#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "src/distributed/rank_handshake.h"

namespace hybrid_trainer {

/// What goes over a connection between two ranks' watches.
struct SideMessage {
  enum class Kind : std::uint32_t { kBeat, kLeaves, kLost };
  Kind kind = Kind::kBeat;
  std::int32_t rank = 0;  // that sends it, or that is lost
  std::uint64_t work = 0, entered = 0, left = 0;
  std::array<char, 192> reason{};
};
/// Of a message about a loss: the launcher, which is no rank.
inline constexpr int kLauncherLost = -1;

/// Whether `peer`, one of so many ranks, may say this.
bool is_sound(const SideMessage& message, int peer, int ranks);

/// One connection, used in the thread of its io_context alone.
class SideConnection : public std::enable_shared_from_this<SideConnection> {
 public:
  /// Told of each message, and once, with null, of the end.
  using Receiver = std::function<void(SideConnection&, const SideMessage*)>;

  /// To the rank `peer`, which has proved to be it, of so many.
  SideConnection(RankSocket socket, int peer, int ranks, Receiver receiver)
      : socket_(std::move(socket)), peer_(peer), ranks_(ranks), receiver_(std::move(receiver)) {}
  /// Begins to receive. What a rank would not say ends the connection.
  void start();
  /// Sends what fits without waiting: a peer that takes nothing is silent anyway.
  void send(const SideMessage& message);
  void close();
  int peer() const { return peer_; }

 private:
  void receive();
  RankSocket socket_;
  const int peer_, ranks_;
  Receiver receiver_;
  SideMessage incoming_;
};

}  // namespace hybrid_trainer
