// CUDA runtime of the tests: each stream is a thread, and device memory is host memory. It is
// linked instead of NVIDIA's and is never shipped.

#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "src/core/cuda_runtime.h"
#include "tests/emulation/block.h"
#include "tests/emulation/emulated_device.h"
#include "tests/emulation/stream_queue.h"

struct CUstream_st {
  int device = 0;
  hybrid_trainer::emulation::StreamQueue queue{};
  double spent_seconds = 0;  // added to the clock; used only by the queue's thread
};
struct CUevent_st {
  int device = 0;
  hybrid_trainer::emulation::EventState state{};
};
struct CUgraphExec_st {
  std::vector<hybrid_trainer::emulation::Work> work;
};

namespace hybrid_trainer {
namespace {

using emulation::device;

/// CUDA's error if a launch or event of one device uses a stream of another device, else "".
std::string mismatch(int got, const CUstream_st* stream) {
  if (got == stream->device) return "";
  return concat("cudaErrorInvalidResourceHandle: cuda:", got,
                " meets a stream of cuda:", stream->device);
}

/// Throws DeviceError if the thread has not used a device or if work has failed.
void check_call(const char* call) {
  if (!device().is_used()) {
    throw DeviceError(concat("CUDA: ", call,
                             " in a thread that has used no device, so that CUDA would open a "
                             "context on cuda:0; let the thread begin with CallersDevice::use"));
  }
  if (const auto failure = device().failure(); !failure.empty())
    throw earlier_failure(failure, call);
}

/// Throws DeviceError if a copy would exceed a block or needs pinned host memory.
void check_memory(const void* data, std::size_t bytes) {
  if (device().reaches(data, bytes)) return;
  throw DeviceError(concat("CUDA: a copy of ", bytes, " bytes at ", data,
                           ", which is neither the device's nor pinned"));
}

class EmulatedRuntime final : public CudaRuntime {
 public:
  int device_count() const override { return emulation::kDevices; }
  CudaProperties properties(int device_index) const override {
    current_device_ = device_index;
    return {.name = "emulated",
            .identity = concat("emulated-", device_index),
            .major = 8,
            .minor = 0,
            .processors = 2,
            .memory_bytes = device().memory_bytes,
            .free_bytes = device().memory_bytes - device().taken_bytes,
            .cache_bytes = 1 << 20,
            .shared_bytes_per_block = device().shared_bytes};
  }
  void use(int device_index) override { current_device_ = device_index; }

  void* allocate(int device_index, std::size_t bytes) noexcept override {
    current_device_ = device_index;
    return device().take(bytes);
  }
  /// Like cudaFree: first waits for all work of the device that might use the memory.
  void release(int device_index, void* data) noexcept override {
    current_device_ = device_index;
    for (const auto& stream : streams_of(device_index)) stream->queue.drain();
    device().give(data);
  }
  void* allocate_pinned(std::size_t bytes) noexcept override {
    return device().is_used() ? device().take_pinned(bytes) : nullptr;
  }
  void release_pinned(void* data) noexcept override {
    device().is_used();
    device().give_pinned(data);
  }

  CUstream_st* create_stream(int device_index) override {
    current_device_ = device_index;
    const auto stream = std::make_shared<CUstream_st>(device_index);
    std::lock_guard lock(mutex_);
    streams_[stream.get()] = stream;
    return stream.get();
  }
  void destroy(CUstream_st* stream) noexcept override {
    device().is_used();
    std::shared_ptr<CUstream_st> gone;  // its work may wait for another device's
    std::lock_guard lock(mutex_);
    gone = std::move(streams_.extract(stream).mapped());
  }
  void synchronize(CUstream_st* stream) override {
    check_call("cudaStreamSynchronize");
    stream->queue.synchronize();
    check_call("cudaStreamSynchronize");
  }
  void copy(void* to, const void* from, std::size_t bytes, CUstream_st* stream) override {
    check_call("cudaMemcpyAsync");
    check_memory(to, bytes);
    check_memory(from, bytes);
    stream->queue.enqueue([=] { emulation::copy_bytes(to, from, bytes); });
  }
  void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                 std::size_t bytes, std::size_t rows, CUstream_st* stream) override {
    check_call("cudaMemcpy2DAsync");
    if (rows == 0) return;
    check_memory(to, (rows - 1) * to_pitch + bytes);
    check_memory(from, (rows - 1) * from_pitch + bytes);
    stream->queue.enqueue([=] {
      for (std::size_t i = 0; i < rows; ++i) {
        emulation::copy_bytes(static_cast<char*>(to) + i * to_pitch,
                              static_cast<const char*>(from) + i * from_pitch, bytes);
      }
    });
  }
  void fill_zero(void* data, std::size_t bytes, CUstream_st* stream) override {
    check_call("cudaMemsetAsync");
    check_memory(data, bytes);
    stream->queue.enqueue([=] { emulation::fill_bytes(data, 0, bytes); });
  }

  CUevent_st* create_event() override {
    check_call("cudaEventCreate");
    return new CUevent_st{current_device_};
  }
  void destroy(CUevent_st* event) noexcept override {
    device().is_used();
    delete event;
  }
  void record(CUevent_st* event, CUstream_st* stream) override {
    check_call("cudaEventRecord");
    if (const auto answer = mismatch(event->device, stream); !answer.empty())
      throw DeviceError(concat("CUDA: cudaEventRecord failed with ", answer));
    stream->queue.enqueue(
        [record = event->state.record(), stream] { record->reach(stream->spent_seconds); });
  }
  void order_after(CUstream_st* stream, CUevent_st* event) override {
    check_call("cudaStreamWaitEvent");
    stream->queue.enqueue([record = event->state.recorded()] { record->wait(); });
  }
  bool reached(CUevent_st* event) override {
    check_call("cudaEventQuery");
    return event->state.recorded()->reached();
  }
  void synchronize(CUevent_st* event) override {
    check_call("cudaEventSynchronize");
    event->state.recorded()->wait();
    check_call("cudaEventSynchronize");
  }
  double seconds_between(CUevent_st* begin, CUevent_st* end) override {
    check_call("cudaEventElapsedTime");
    return end->state.recorded()->reached_at_seconds() -
           begin->state.recorded()->reached_at_seconds();
  }

  void begin_capture(CUstream_st* stream) override {
    check_call("cudaStreamBeginCapture");
    stream->queue.begin_capture();
  }
  CUgraphExec_st* end_capture(CUstream_st* stream) override {
    check_call("cudaStreamEndCapture");
    try {
      return new CUgraphExec_st{stream->queue.end_capture()};
    } catch (const std::runtime_error& error) {
      throw DeviceError(concat("CUDA: cudaStreamEndCapture failed with ", error.what()));
    }
  }
  bool captures(CUstream_st* stream) override {
    check_call("cudaStreamIsCapturing");
    return stream->queue.captures();
  }
  void launch(CUgraphExec_st* graph, CUstream_st* stream) override {
    check_call("cudaGraphLaunch");
    ++device().replays;
    stream->queue.enqueue([work = graph->work] {
      for (const emulation::Work& one : work) one();
    });
  }
  void destroy(CUgraphExec_st* graph) noexcept override {
    device().is_used();
    delete graph;
  }

  std::string failure() noexcept override { return device().failure(); }

  std::string driver_version() const override { return "none"; }
  std::string runtime_version() const override { return "emulated"; }

 private:
  std::vector<std::shared_ptr<CUstream_st>> streams_of(int device_index) {
    std::vector<std::shared_ptr<CUstream_st>> found;
    std::lock_guard lock(mutex_);
    for (const auto& [address, stream] : streams_) {
      if (stream->device == device_index) found.push_back(stream);
    }
    return found;
  }

  std::mutex mutex_;
  std::map<CUstream_st*, std::shared_ptr<CUstream_st>> streams_;
};

}  // namespace

const CudaLookup& find_cuda() {
  static EmulatedRuntime runtime;
  static const CudaLookup found{&runtime, ""};
  return found;
}

}  // namespace hybrid_trainer

namespace hybrid_trainer::emulation {
namespace {

/// Skips the work if earlier work has failed; keeps the first failure.
Work until_failure(Work work) {
  return [work = std::move(work)] {
    if (!device().failure().empty()) return;
    try {
      work();
    } catch (const std::exception& error) {
      device().fail(error.what());
    }
  };
}

}  // namespace

void enqueue(CUstream_st* stream, std::function<void()> work) {
  stream->queue.enqueue(until_failure(std::move(work)));
}

void spend(CUstream_st* stream, double seconds) {
  stream->queue.enqueue([=] { stream->spent_seconds += seconds; });
}

std::string enqueue_launch(CUstream_st* stream, const char* name, const kernels::cuda::Grid& grid,
                           const std::vector<const void*>& pointers, std::function<void()> body) {
  if (!device().is_used()) return "no device: the thread has used none";
  if (const auto failure = device().failure(); !failure.empty()) return failure;
  if (device().refuses == name) {
    stream->queue.invalidate_capture();
    return "what the test refuses";
  }
  if (const auto answer = mismatch(current_device(), stream); !answer.empty()) return answer;
  for (const void* const pointer : pointers) {
    if (pointer != nullptr && !device().reaches(pointer, 0))
      return "cudaErrorInvalidValue: an argument points to memory of the host";
  }
  if (device().sees_launch) device().sees_launch(name, grid);
  enqueue(stream, [=, body = std::move(body), fails = device().fails == name] {
    if (fails) throw std::runtime_error("an error that the test wants");
    run_grid(name, grid, body);
  });
  return "";
}

}  // namespace hybrid_trainer::emulation
