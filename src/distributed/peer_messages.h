#pragma once

#include <cstring>
#include <string_view>
#include <vector>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/distributed/communicator.h"

namespace hybrid_trainer {

struct OutgoingBytes {
  int peer;
  const void* data;
  std::size_t bytes;
};

struct IncomingBytes {
  int peer;
  void* data;
  std::size_t bytes;
};

struct Bytes {
  void* data;
  std::size_t count;
};

/// Of elements [first, last).
inline Bytes bytes_of(const Tensor& tensor, std::int64_t first, std::int64_t last) {
  const std::size_t each = size_of(tensor.dtype());
  return {static_cast<char*>(tensor.raw()) + static_cast<std::size_t>(first) * each,
          static_cast<std::size_t>(last - first) * each};
}

inline Bytes bytes_of(const Tensor& tensor, const Shard& shard) {
  return bytes_of(tensor, shard.first, shard.last);
}

inline Bytes bytes_of(const std::string_view text) {
  return {const_cast<char*>(text.data()), text.size()};
}

inline void copy_bytes(void* to, const Bytes& from) {
  if (from.count > 0 && to != from.data) std::memcpy(to, from.data, from.count);
}

/// What a rank exchanges with the others at once: not empty, and not with itself.
class PeerMessages {
 public:
  explicit PeerMessages(int me) : me_(me) {}
  void send(int peer, const Bytes& from) {
    if (peer != me_ && from.count > 0) sent.push_back({peer, from.data, from.count});
  }
  void receive(int peer, const Bytes& to) {
    if (peer != me_ && to.count > 0) received.push_back({peer, to.data, to.count});
  }
  /// With itself a rank copies.
  void exchange(int peer, const Bytes& from, const Bytes& to) {
    if (peer == me_) copy_bytes(to.data, from);
    send(peer, from);
    receive(peer, to);
  }
  std::vector<OutgoingBytes> sent;
  std::vector<IncomingBytes> received;

 private:
  int me_;
};

}  // namespace hybrid_trainer
