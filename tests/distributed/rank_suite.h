#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/distributed/communicator.h"

namespace hybrid_trainer::testing {

/// The code of one rank, with a stream on its device.
using RankBody = std::function<void(Communicator&, const Stream&)>;

/// A communicator implementation and its number of ranks.
struct RankCase {
  std::string name;
  std::function<void(const RankBody&)> run;
  bool blocks_host = true;  // by each call, so mismatched calls are found
};

/// All implementations that this process can run.
std::vector<RankCase> rank_cases();

/// Makes a tensor on the stream's device.
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

/// Message of the expected exception, or "" if none is thrown.
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
/// Room for the f32 values of all ranks, one after another. Only this rank's part is filled, as in
/// counted(); gather() fills the rest in place.
Tensor parted(std::int64_t elements, float first, const Communicator& ranks, const Stream& stream);
void gather(const Tensor& parted, Communicator& ranks, const Stream& stream);
/// Returns each element's sum over the ranks. Waits for the stream.
std::vector<float> sums_of(const Tensor& parted, const Communicator& ranks, const Stream& stream);
/// Sets `values` to those of rank `root`.
void broadcast(const Tensor& values, int root, Communicator& ranks, const Stream& stream);
/// A stream on the CPU.
Stream rank_stream();

}  // namespace hybrid_trainer::testing
