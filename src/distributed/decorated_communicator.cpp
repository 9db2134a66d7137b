#include "hybrid_trainer/distributed/decorated_communicator.h"

namespace hybrid_trainer {

void DecoratedCommunicator::all_gather(const Tensor& values, const Tensor& shard,
                                       const Stream& stream) {
  make(&stream, [&] { ranks_.all_gather(values, shard, stream); });
}

void DecoratedCommunicator::gather_parts(const Tensor& values,
                                         const std::vector<std::int64_t>& counts,
                                         const Stream& stream) {
  make(&stream, [&] { ranks_.gather_parts(values, counts, stream); });
}

void DecoratedCommunicator::all_to_all(const Tensor& received,
                                       const std::vector<std::int64_t>& receive_counts,
                                       const Tensor& sent,
                                       const std::vector<std::int64_t>& send_counts,
                                       const Stream& stream) {
  make(&stream, [&] { ranks_.all_to_all(received, receive_counts, sent, send_counts, stream); });
}

void DecoratedCommunicator::barrier() {
  make(nullptr, [&] { ranks_.barrier(); });
}

std::vector<std::string> DecoratedCommunicator::host_gather(std::string_view bytes) {
  std::vector<std::string> all;
  make(nullptr, [&] { all = ranks_.host_gather(bytes); });
  return all;
}

}  // namespace hybrid_trainer
