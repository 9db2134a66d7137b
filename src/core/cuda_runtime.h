#pragma once

#include "hybrid_trainer/core/error.h"

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace hybrid_trainer {

/// One CUDA device as its driver describes it.
struct CudaProperties {
  std::string name;
  std::string identity;  // the same for every process that sees this device
  int major = 0;         // compute capability
  int minor = 0;
  int processors = 0;  // streaming multiprocessors
  std::size_t memory_bytes = 0;
  std::size_t free_bytes = 0;
  std::size_t cache_bytes = 0;             // of the L2 cache
  std::size_t shared_bytes_per_block = 0;  // the most that a kernel may ask for
};

/// The few CUDA runtime calls that this project makes. One implementation is linked: NVIDIA's
/// runtime, or none. Calls that enqueue return at once; all throw DeviceError, or OutOfMemory where
/// the device has no memory for them, except those that are noexcept, which return nullptr or
/// nothing. Beside those that name a device, calls are for threads that have used one: in another
/// thread CUDA would open a context on cuda:0 for them.
class CudaRuntime {
 public:
  virtual ~CudaRuntime() = default;
  /// The device that the calling thread used last, whose calls go there; -1 before the first.
  static int current_device() { return current_device_; }
  virtual int device_count() const = 0;
  virtual CudaProperties properties(int device) const = 0;
  /// Makes the device current for the calling thread: the thread's launches go there.
  virtual void use(int device) = 0;

  virtual void* allocate(int device, std::size_t bytes) noexcept = 0;
  virtual void release(int device, void* data) noexcept = 0;
  virtual void* allocate_pinned(std::size_t bytes) noexcept = 0;
  virtual void release_pinned(void* data) noexcept = 0;

  virtual CUstream_st* create_stream(int device) = 0;
  virtual void destroy(CUstream_st* stream) noexcept = 0;
  virtual void synchronize(CUstream_st* stream) = 0;
  /// Between device and pinned memory, or within the device.
  virtual void copy(void* to, const void* from, std::size_t bytes, CUstream_st* stream) = 0;
  /// `rows` rows of `bytes` each, which start `to_pitch` and `from_pitch` bytes apart.
  virtual void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                         std::size_t bytes, std::size_t rows, CUstream_st* stream) = 0;
  virtual void fill_zero(void* data, std::size_t bytes, CUstream_st* stream) = 0;

  virtual CUevent_st* create_event() = 0;
  virtual void destroy(CUevent_st* event) noexcept = 0;
  virtual void record(CUevent_st* event, CUstream_st* stream) = 0;
  virtual void order_after(CUstream_st* stream, CUevent_st* event) = 0;
  virtual bool reached(CUevent_st* event) = 0;
  virtual void synchronize(CUevent_st* event) = 0;
  virtual double seconds_between(CUevent_st* begin, CUevent_st* end) = 0;

  /// From here to end_capture the stream's work is recorded and not run.
  virtual void begin_capture(CUstream_st* stream) = 0;
  virtual CUgraphExec_st* end_capture(CUstream_st* stream) = 0;
  /// Whether the stream is between the two; then it must not be waited for.
  virtual bool captures(CUstream_st* stream) = 0;
  virtual void launch(CUgraphExec_st* graph, CUstream_st* stream) = 0;
  virtual void destroy(CUgraphExec_st* graph) noexcept = 0;

  /// What work of the current device has failed with; "" where none has. CUDA answers it to every
  /// later call.
  virtual std::string failure() noexcept = 0;

  virtual std::string driver_version() const = 0;   // "13.0": the API that the driver supports
  virtual std::string runtime_version() const = 0;  // "13.0" of the toolkit that built this

 protected:
  static inline thread_local int current_device_ = -1;
};

/// The CUDA runtime, or why there is none and how to fix that.
struct CudaLookup {
  CudaRuntime* runtime = nullptr;
  std::string problem;
};

/// Looks for CUDA in this build and machine. Looked up once; callable from any thread.
const CudaLookup& look_for_cuda();

/// The runtime. Throws DeviceError with look_for_cuda's problem.
CudaRuntime& cuda_runtime();

/// An error for a call that answers what earlier work has failed with.
DeviceError earlier_failure(const std::string& failure, const std::string& seen_at);

/// The device of the thread that makes this, for a thread that it starts: that one calls `use`
/// first, so that all its calls go to the same device.
class CallersDevice {
 public:
  /// Does nothing if the maker had used no device.
  void use() const {
    if (index_ >= 0) cuda_runtime().use(index_);
  }

 private:
  int index_ = CudaRuntime::current_device();
};

/// Whether the device has so little free memory (256 MiB) that a library's failure is taken for the
/// lack of it: one that cannot load its kernels does not always say so. False where it is unknown.
bool is_short_of_device_memory(int device) noexcept;

/// Throws OutOfMemory for a call that found no device memory outside the pools, such as a library
/// that loads its kernels. `what` names the call and its result.
[[noreturn]] void throw_out_of_device_memory(const std::string& what, int device);

}  // namespace hybrid_trainer
