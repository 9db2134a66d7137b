#include "hybrid_trainer/distributed/absent_communicator.h"

#include <algorithm>
#include <numeric>

namespace hybrid_trainer {
namespace {

std::uint64_t bytes_of_elements(std::int64_t elements, const Tensor& tensor) {
  return static_cast<std::uint64_t>(elements) * size_of(tensor.dtype());
}

/// Of what goes to or comes from each rank, those of others.
std::uint64_t bytes_of_others(const std::vector<std::int64_t>& counts, int rank,
                              const Tensor& tensor) {
  const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  return bytes_of_elements(all - counts[static_cast<std::size_t>(rank)], tensor);
}

}  // namespace

void AbsentCommunicator::count(std::uint64_t sent, std::uint64_t received) {
  use_.bytes_sent += sent;
  use_.bytes_received += received;
  ++use_.calls;
  link_bytes_ += std::max(sent, received);
}

void AbsentCommunicator::all_gather(const Tensor& values, const Tensor& shard, const Stream&) {
  count(bytes_of_elements(shard.elements() * (size_ - 1), values),
        bytes_of_elements(values.elements() - shard.elements(), values));
}

void AbsentCommunicator::gather_parts(const Tensor& values, const std::vector<std::int64_t>& counts,
                                      const Stream&) {
  const std::int64_t own = counts[static_cast<std::size_t>(rank_)];
  count(bytes_of_elements(own * (size_ - 1), values), bytes_of_others(counts, rank_, values));
}

void AbsentCommunicator::all_to_all(const Tensor& received,
                                    const std::vector<std::int64_t>& receive_counts,
                                    const Tensor& sent,
                                    const std::vector<std::int64_t>& send_counts, const Stream&) {
  count(bytes_of_others(send_counts, rank_, sent),
        bytes_of_others(receive_counts, rank_, received));
}

std::vector<std::string> AbsentCommunicator::host_gather(std::string_view bytes) {
  const auto others = static_cast<std::uint64_t>(size_ - 1);
  count(bytes.size() * others, bytes.size() * others);
  return std::vector<std::string>(static_cast<std::size_t>(size_), std::string(bytes));
}

void AbsentCommunicator::abort(const std::string& reason) { throw RankLost(reason); }

}  // namespace hybrid_trainer
