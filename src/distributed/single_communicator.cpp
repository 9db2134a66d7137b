#include "src/distributed/single_communicator.h"

#include <algorithm>
#include <numeric>

namespace hybrid_trainer {

namespace {

void copy_unless_same(const Tensor& to, const Tensor& from, const Stream& stream) {
  if (to.elements() == 0 || to.raw() == from.raw()) return;
  copy(to.view({to.elements()}), from.view({from.elements()}), stream);
}

std::uint64_t bytes_of_elements(std::int64_t elements, const Tensor& tensor) {
  return static_cast<std::uint64_t>(elements) * size_of(tensor.dtype());
}

std::uint64_t bytes_of_others(const std::vector<std::int64_t>& counts, int rank,
                              const Tensor& tensor) {
  const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  return bytes_of_elements(all - counts[static_cast<std::size_t>(rank)], tensor);
}

}  // namespace

void SingleCommunicator::all_gather(const Tensor& values, const Tensor& shard,
                                    const Stream& stream) {
  check_shard(shard, values, 0, 1);
  copy_unless_same(values, shard, stream);
  ++use_.calls;
}

void SingleCommunicator::gather_parts(const Tensor& values, const std::vector<std::int64_t>& counts,
                                      const Stream&) {
  check_counts(values, counts, 1);
  ++use_.calls;
}

void SingleCommunicator::all_to_all(const Tensor& received,
                                    const std::vector<std::int64_t>& receive_counts,
                                    const Tensor& sent,
                                    const std::vector<std::int64_t>& send_counts,
                                    const Stream& stream) {
  check_counts(received, receive_counts, 1);
  check_counts(sent, send_counts, 1);
  if (receive_counts != send_counts)
    throw CollectiveMismatch(concat("rank 0 sends itself ", send_counts[0],
                                    " elements, but expects ", receive_counts[0]));
  const std::int64_t count = send_counts[0];
  if (count > 0) {
    copy_unless_same(received.view({received.elements()}).rows(0, count),
                     sent.view({sent.elements()}).rows(0, count), stream);
  }
  ++use_.calls;
}

void SingleCommunicator::barrier() { ++use_.calls; }

std::vector<std::string> SingleCommunicator::host_gather(std::string_view bytes) {
  ++use_.calls;
  return {std::string(bytes)};
}

void SingleCommunicator::abort(const std::string& reason) {
  throw RankLost(concat("rank 0 gave up: ", reason));
}

void SimulatedCommunicator::count(std::uint64_t sent, std::uint64_t received) {
  use_.bytes_sent += sent;
  use_.bytes_received += received;
  ++use_.calls;
  link_bytes_ += std::max(sent, received);
}

void SimulatedCommunicator::all_gather(const Tensor& values, const Tensor& shard, const Stream&) {
  count(bytes_of_elements(shard.elements() * (size_ - 1), values),
        bytes_of_elements(values.elements() - shard.elements(), values));
}

void SimulatedCommunicator::gather_parts(const Tensor& values,
                                         const std::vector<std::int64_t>& counts, const Stream&) {
  const std::int64_t own = counts[static_cast<std::size_t>(rank_)];
  count(bytes_of_elements(own * (size_ - 1), values), bytes_of_others(counts, rank_, values));
}

void SimulatedCommunicator::all_to_all(const Tensor& received,
                                       const std::vector<std::int64_t>& receive_counts,
                                       const Tensor& sent,
                                       const std::vector<std::int64_t>& send_counts,
                                       const Stream&) {
  count(bytes_of_others(send_counts, rank_, sent),
        bytes_of_others(receive_counts, rank_, received));
}

std::vector<std::string> SimulatedCommunicator::host_gather(std::string_view bytes) {
  const auto others = static_cast<std::uint64_t>(size_ - 1);
  count(bytes.size() * others, bytes.size() * others);
  return std::vector<std::string>(static_cast<std::size_t>(size_), std::string(bytes));
}

void SimulatedCommunicator::abort(const std::string& reason) { throw RankLost(reason); }

}  // namespace hybrid_trainer
