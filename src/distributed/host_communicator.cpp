#include "src/distributed/host_communicator.h"

#include <algorithm>

namespace hybrid_trainer {

namespace {

const char* name_of_operation(Operation operation) {
  switch (operation) {
    case Operation::kAllGather: return "all_gather";
    case Operation::kGatherParts: return "gather_parts";
    case Operation::kAllToAll: return "all_to_all";
    case Operation::kBarrier: return "barrier";
    case Operation::kHostGather: return "host_gather";
  }
  return "?";
}

void check_in_host_memory(const Tensor& tensor) {
  if (tensor.device().type == DeviceType::kCpu) return;
  throw DeviceError(
      "ranks as threads or with Open MPI support only CPU tensors, got a CUDA tensor: train with "
      "--device cpu");
}

/// Returns the description of a call: "all_gather of 5 f32, its call 7".
std::string text_of(const CollectiveCall& call) {
  std::string text = name_of_operation(call.operation);
  if (call.operation != Operation::kBarrier && call.operation != Operation::kHostGather)
    text += concat(" of ", call.elements, " ", name_of(call.dtype));
  if (call.sequence > 0) text += concat(", its call ", call.sequence);
  return text;
}

/// Throws CollectiveMismatch, which lists the call of each rank, unless all calls are equal.
void check_same(const std::vector<CollectiveCall>& calls) {
  const auto differs = [&](const CollectiveCall& call) { return !(call == calls.front()); };
  if (std::none_of(calls.begin(), calls.end(), differs)) return;
  std::vector<std::string> parts;
  for (std::size_t rank = 0; rank < calls.size(); ++rank)
    parts.push_back(concat("rank ", rank, " called ", text_of(calls[rank])));
  throw CollectiveMismatch("the ranks call different collectives: " + join(parts, "; "));
}

/// Throws CollectiveMismatch if the call `got` of `from` is not the one that `rank` expects.
void check_expected(const CollectiveCall& expected, int rank, const CollectiveCall& got, int from) {
  if (expected == got) return;
  throw CollectiveMismatch(concat("the ranks call different collectives: rank ", rank,
                                  " waits for ", text_of(expected), " from rank ", from,
                                  ", which called ", text_of(got)));
}

}  // namespace

/// Sends this rank's calls to the other ranks and returns their calls, in the order of ranks.
std::vector<CollectiveCall> HostCommunicator::exchange(
    const std::vector<CollectiveCall>& for_each) {
  std::vector<CollectiveCall> calls(for_each.size());
  PeerMessages messages(rank_);
  for (int peer = 0; peer < size_; ++peer) {
    const auto i = static_cast<std::size_t>(peer);
    messages.exchange(peer, {const_cast<CollectiveCall*>(&for_each[i]), sizeof for_each[i]},
                      {&calls[i], sizeof calls[i]});
  }
  try {
    enter_and_wait(messages.sent, messages.received);
  } catch (const RankLost& error) {
    throw RankLost(concat(error.what(), "; rank ", rank_, " was in ",
                          text_of(for_each[static_cast<std::size_t>(rank_)])));
  }
  ++calls_;
  return calls;
}

void HostCommunicator::enter_and_wait(std::span<const OutgoingBytes> sent,
                                      std::span<const IncomingBytes> received) {
  ++entered_;
  wait_for_transfer(sent, received);
  ++left_;
}

/// Checks that all ranks make the same call, for collectives with equal counts on all ranks.
void HostCommunicator::agree(Operation operation, const Tensor& values, std::int64_t detail) {
  check_in_host_memory(values);
  const CollectiveCall call{operation, values.dtype(), detail, values.elements(), ++collectives_};
  check_same(exchange(std::vector<CollectiveCall>(static_cast<std::size_t>(size_), call)));
}

void HostCommunicator::wait_for_data(const PeerMessages& messages) {
  for (const OutgoingBytes& message : messages.sent) bytes_sent_ += message.bytes;
  for (const IncomingBytes& message : messages.received) bytes_received_ += message.bytes;
  enter_and_wait(messages.sent, messages.received);
}

/// Gathers the shards of all ranks. This rank's shard must already be in its place.
void HostCommunicator::gather_from_all(const Tensor& values, const std::vector<Shard>& by_rank) {
  PeerMessages messages(rank_);
  const Bytes mine = bytes_of(values, by_rank[static_cast<std::size_t>(rank_)]);
  for (int peer = 0; peer < size_; ++peer)
    messages.exchange(peer, mine, bytes_of(values, by_rank[static_cast<std::size_t>(peer)]));
  wait_for_data(messages);
}

void HostCommunicator::all_gather(const Tensor& values, const Tensor& shard, const Stream&) {
  check_shard(shard, values, rank_, size_);
  agree(Operation::kAllGather, values, 0);
  std::vector<Shard> shards;
  for (int rank = 0; rank < size_; ++rank)
    shards.push_back(shard_of(values.elements(), rank, size_));
  const Shard& mine = shards[static_cast<std::size_t>(rank_)];
  copy_bytes(bytes_of(values, mine).data, bytes_of(shard, 0, shard.elements()));
  gather_from_all(values, shards);
}

void HostCommunicator::gather_parts(const Tensor& values, const std::vector<std::int64_t>& counts,
                                    const Stream&) {
  check_counts(values, counts, size_);
  std::vector<Shard> parts;
  std::int64_t first = 0;
  std::uint64_t hash = 0;  // hash of the counts, which must be equal on all ranks
  for (const std::int64_t count : counts) {
    parts.push_back({first, first + count});
    first += count;
    hash = hash * 31 + static_cast<std::uint64_t>(count);
  }
  agree(Operation::kGatherParts, values, static_cast<std::int64_t>(hash));
  gather_from_all(values, parts);
}

void HostCommunicator::all_to_all(const Tensor& received,
                                  const std::vector<std::int64_t>& receive_counts,
                                  const Tensor& sent, const std::vector<std::int64_t>& send_counts,
                                  const Stream&) {
  check_in_host_memory(received);
  check_counts(received, receive_counts, size_);
  check_counts(sent, send_counts, size_);
  std::vector<CollectiveCall> calls;
  ++collectives_;
  for (const std::int64_t count : send_counts)
    calls.push_back({Operation::kAllToAll, sent.dtype(), 0, count, collectives_});
  calls = exchange(calls);
  PeerMessages messages(rank_);
  std::int64_t from = 0, to = 0;
  for (int peer = 0; peer < size_; ++peer) {
    const auto i = static_cast<std::size_t>(peer);
    check_expected({Operation::kAllToAll, received.dtype(), 0, receive_counts[i], collectives_},
                   rank_, calls[i], peer);
    messages.exchange(peer, bytes_of(sent, from, from + send_counts[i]),
                      bytes_of(received, to, to + receive_counts[i]));
    from += send_counts[i];
    to += receive_counts[i];
  }
  wait_for_data(messages);
}

void HostCommunicator::barrier() { agree(Operation::kBarrier, Tensor{}, 0); }

std::vector<std::string> HostCommunicator::host_gather(std::string_view bytes) {
  CollectiveCall call{Operation::kHostGather, DType::kU8, 0,
                      static_cast<std::int64_t>(bytes.size()), ++collectives_};
  const auto lengths = exchange(std::vector<CollectiveCall>(static_cast<std::size_t>(size_), call));
  auto calls = lengths;
  for (CollectiveCall& other : calls) other.elements = call.elements;
  check_same(calls);
  std::vector<std::string> all(lengths.size());
  PeerMessages messages(rank_);
  for (int peer = 0; peer < size_; ++peer) {
    std::string& theirs = all[static_cast<std::size_t>(peer)];
    theirs.resize(static_cast<std::size_t>(lengths[static_cast<std::size_t>(peer)].elements));
    messages.exchange(peer, bytes_of(bytes), bytes_of(theirs));
  }
  wait_for_data(messages);
  return all;
}

}  // namespace hybrid_trainer
