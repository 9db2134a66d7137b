#include "hybrid_trainer/distributed/single_communicator.h"

#include "src/distributed/shard_checks.h"

namespace hybrid_trainer {
namespace {

void copy_unless_same(const Tensor& to, const Tensor& from, const Stream& stream) {
  if (to.elements() == 0 || to.raw() == from.raw()) return;
  copy(to.view({to.elements()}), from.view({from.elements()}), stream);
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
  if (receive_counts != send_counts) {
    throw CollectiveMismatch(concat("rank 0 sends itself ", send_counts[0],
                                    " elements and waits for ", receive_counts[0]));
  }
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

}  // namespace hybrid_trainer
