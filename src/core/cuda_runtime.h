#pragma once

#include "hybrid_trainer/core/error.h"

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace hybrid_trainer {

struct CudaProperties {
  std::string name;
  std::string identity;  // identifier that is the same in all processes that can use the device
  int major = 0;         // compute capability
  int minor = 0;
  int processors = 0;  // number of streaming multiprocessors
  std::size_t memory_bytes = 0;
  std::size_t free_bytes = 0;
  std::size_t cache_bytes = 0;  // size of the L2 cache
  /// Maximum shared memory of a block, which a kernel must request explicitly.
  std::size_t shared_bytes_per_block = 0;
};

/// The CUDA runtime calls of this project. The build links one implementation: NVIDIA's runtime or
/// none. Asynchronous calls return immediately. Calls throw DeviceError, or OutOfMemory if memory
/// is short; noexcept calls return nullptr or nothing. A thread must select a device before it
/// makes a call without a device argument; otherwise CUDA would open a context on cuda:0.
class CudaRuntime {
 public:
  virtual ~CudaRuntime() = default;
  /// Returns the current device of the calling thread, or -1 if the thread has not selected a
  /// device.
  static int current_device() { return current_device_; }
  virtual int device_count() const = 0;
  virtual CudaProperties properties(int device) const = 0;
  virtual void use(int device) = 0;

  virtual void* allocate(int device, std::size_t bytes) noexcept = 0;
  virtual void release(int device, void* data) noexcept = 0;
  virtual void* allocate_pinned(std::size_t bytes) noexcept = 0;
  virtual void release_pinned(void* data) noexcept = 0;

  virtual CUstream_st* create_stream(int device) = 0;
  virtual void destroy(CUstream_st* stream) noexcept = 0;
  virtual void synchronize(CUstream_st* stream) = 0;
  /// Copies between device and pinned memory, or within the device.
  virtual void copy(void* to, const void* from, std::size_t bytes, CUstream_st* stream) = 0;
  /// Copies `rows` rows of `bytes` each, at strides `to_pitch` and `from_pitch` in bytes.
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

  /// Records the work on the stream, without running it, until end_capture.
  virtual void begin_capture(CUstream_st* stream) = 0;
  virtual CUgraphExec_st* end_capture(CUstream_st* stream) = 0;
  /// Returns whether the stream is capturing; a capturing stream must not be synchronized.
  virtual bool captures(CUstream_st* stream) = 0;
  virtual void launch(CUgraphExec_st* graph, CUstream_st* stream) = 0;
  virtual void destroy(CUgraphExec_st* graph) noexcept = 0;

  /// Returns the sticky error, which every later call on the current device returns, or "".
  virtual std::string failure() noexcept = 0;

  virtual std::string driver_version() const = 0;   // "13.0", the API version of the driver
  virtual std::string runtime_version() const = 0;  // "13.0", the version of the toolkit

 protected:
  static inline thread_local int current_device_ = -1;
};

struct CudaLookup {
  CudaRuntime* runtime = nullptr;
  std::string problem;
};

/// Looks for CUDA in this build and machine, once per process. Thread-safe.
const CudaLookup& find_cuda();

/// Returns the runtime. Throws DeviceError with the problem of find_cuda.
CudaRuntime& cuda_runtime();

/// Returns the error for a call that reports a failure of earlier work.
DeviceError earlier_failure(const std::string& failure, const std::string& detected_at);

/// Remembers the constructing thread's device for a thread that it starts. That thread calls `use`
/// first.
class CallerDevice {
 public:
  /// Does nothing if the constructing thread had no device.
  void use() const {
    if (index_ >= 0) cuda_runtime().use(index_);
  }

 private:
  int index_ = CudaRuntime::current_device();
};

/// Returns whether the device has less than 256 MiB of free memory; false if unknown. If true, a
/// library's failure counts as a lack of memory: libraries may not report why kernels do not load.
bool is_short_of_device_memory(int device) noexcept;

/// Throws OutOfMemory for memory outside the pools, such as a library's kernels. `what`: the call.
[[noreturn]] void throw_out_of_device_memory(const std::string& what, int device);

}  // namespace hybrid_trainer
