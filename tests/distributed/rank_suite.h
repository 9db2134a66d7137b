#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/distributed/communicator.h"

namespace hybrid_trainer::testing {

/// One rank, with a stream of its device.
using RankBody = std::function<void(Communicator&, const Stream&)>;

/// An implementation and its number of ranks.
struct RankCase {
  std::string name;
  std::function<void(const RankBody&)> run;
  bool blocks_host = true;  // in each call, so that it adds up by rank and sees calls that differ
};

/// All implementations that this process can run.
std::vector<RankCase> rank_cases();

/// On the stream's device.
template <class T>
Tensor tensor_of(const std::vector<T>& values, const Stream& stream) {
  const auto count = static_cast<std::int64_t>(values.size());
  const Stream host(MemoryPool::create("values"));
  const Tensor here = Tensor::empty({count}, DTypeOf<T>::value, MemoryKind::kWorkspace, host);
  const Tensor there = Tensor::empty({count}, DTypeOf<T>::value, MemoryKind::kWorkspace, stream);
  if (count == 0) return there;
  std::copy(values.begin(), values.end(), here.data<T>());
  wait_for_copy(there, here, stream);
  return there;
}

/// Waits for the stream.
template <class T>
std::vector<T> values_of(const Tensor& tensor, const Stream& stream) {
  if (tensor.elements() == 0) return {};
  const Tensor here = wait_for_host(tensor, stream);
  return {here.data<T>(), here.data<T>() + here.elements()};
}

/// What the expected exception says; empty where none is thrown.
template <class Expected>
std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Expected& error) {
    return error.what();
  }
  return "";
}

/// f32 values first, first + 1, …
Tensor counted(std::int64_t elements, float first, const Stream& stream);
std::vector<float> floats_of(const Tensor& tensor, const Stream& stream);
/// f32 values of all ranks, one after the other, of which this one has filled its own as counted; to
/// be gathered in place.
Tensor parted(std::int64_t elements, float first, const Communicator& ranks, const Stream& stream);
void gather(const Tensor& parted, Communicator& ranks, const Stream& stream);
/// Each element's sum over the ranks. Waits for the stream.
std::vector<float> sums_of(const Tensor& parted, const Communicator& ranks, const Stream& stream);
/// `values` becomes what it is on rank `root`.
void broadcast(const Tensor& values, int root, Communicator& ranks, const Stream& stream);
/// On the processor.
Stream rank_stream();

}  // namespace hybrid_trainer::testing
