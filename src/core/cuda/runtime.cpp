#include <cuda_runtime_api.h>

#include "hybrid_trainer/core/error.h"
#include "src/core/cuda_runtime.h"
#include "src/core/sha256.h"

namespace hybrid_trainer {

namespace {

std::string version_text(int version) { return concat(version / 1000, ".", version % 1000 / 10); }

std::string text_of(cudaError_t answer) {
  return concat(cudaGetErrorName(answer), ": ", cudaGetErrorString(answer));
}

/// Returns the error of earlier work, or "". Clears the last error and makes a call that fails only
/// after a sticky error.
std::string failure_of_work() {
  cudaGetLastError();
  if (CudaRuntime::current_device() < 0) return "";
  std::size_t free = 0, total = 0;
  const cudaError_t answer = cudaMemGetInfo(&free, &total);
  return answer == cudaSuccess ? "" : text_of(answer);
}

/// Clears the error and throws DeviceError with the call, arguments and result, or OutOfMemory.
void check(cudaError_t answer, const char* call, const std::string& asked = "") {
  if (answer == cudaSuccess) return;
  const std::string what = concat(call, asked.empty() ? "" : " (" + asked + ")");
  const int device = CudaRuntime::current_device();
  if (answer == cudaErrorMemoryAllocation && device >= 0) {  // this error is not sticky
    cudaGetLastError();
    throw_out_of_device_memory(concat("CUDA: ", what, " failed with ", cudaGetErrorName(answer)),
                               device);
  }
  if (failure_of_work() == text_of(answer)) throw earlier_failure(text_of(answer), what);
  throw DeviceError(concat("CUDA: ", what, " failed with ", text_of(answer),
                           "; `hybrid doctor` shows the device, and --device cpu runs without it"));
}

/// Checks the result of selecting a device, which creates a context and may run out of memory.
void check_context(cudaError_t answer, int device) {
  if (answer == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw OutOfMemory(
        concat("CUDA: cuda:", device,
               " has too little free memory for this program's CUDA context, about 0.5 GB; end "
               "other programs on the device (`nvidia-smi` lists them), or use another device"),
        0, 0);
  }
  check(answer, "cudaSetDevice", concat("device ", device));
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

std::string uuid_text(const cudaUUID_t& uuid) {
  return "GPU-" + hex_of({reinterpret_cast<const std::uint8_t*>(uuid.bytes), sizeof uuid.bytes});
}

class Runtime final : public CudaRuntime {
 public:
  int device_count() const override {
    int count = 0;
    check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    return count;
  }

  CudaProperties properties(int device) const override {
    cudaDeviceProp found{};
    check(cudaGetDeviceProperties(&found, device), "cudaGetDeviceProperties",
          concat("device ", device));
    check_context(set_device(device), device);
    CudaProperties properties{.name = found.name,
                              .identity = uuid_text(found.uuid),
                              .major = found.major,
                              .minor = found.minor,
                              .processors = found.multiProcessorCount,
                              .memory_bytes = found.totalGlobalMem,
                              .cache_bytes = static_cast<std::size_t>(found.l2CacheSize)};
    properties.shared_bytes_per_block =
        static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    std::size_t total = 0;
    check(cudaMemGetInfo(&properties.free_bytes, &total), "cudaMemGetInfo");
    return properties;
  }

  void use(int device) override { check_context(set_device(device), device); }

  void* allocate(int device, std::size_t bytes) noexcept override {
    void* data = nullptr;
    const bool done = set_device(device) == cudaSuccess && cudaMalloc(&data, bytes) == cudaSuccess;
    if (!done) cudaGetLastError();
    return done ? data : nullptr;
  }
  void release(int device, void* data) noexcept override {
    set_device(device);
    cudaFree(data);
  }
  void* allocate_pinned(std::size_t bytes) noexcept override {
    void* data = nullptr;
    const bool done = cudaHostAlloc(&data, bytes, cudaHostAllocPortable) == cudaSuccess;
    if (!done) cudaGetLastError();
    return done ? data : nullptr;
  }
  void release_pinned(void* data) noexcept override { cudaFreeHost(data); }

  CUstream_st* create_stream(int device) override {
    use(device);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return stream;
  }
  void destroy(CUstream_st* stream) noexcept override { cudaStreamDestroy(stream); }
  void synchronize(CUstream_st* stream) override {
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  void copy(void* to, const void* from, std::size_t bytes, CUstream_st* stream) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync",
          concat(bytes, " bytes"));
  }
  void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                 std::size_t bytes, std::size_t rows, CUstream_st* stream) override {
    check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, bytes, rows, cudaMemcpyDefault, stream),
          "cudaMemcpy2DAsync", concat(rows, " rows of ", bytes, " bytes"));
  }
  void fill_zero(void* data, std::size_t bytes, CUstream_st* stream) override {
    check(cudaMemsetAsync(data, 0, bytes, stream), "cudaMemsetAsync", concat(bytes, " bytes"));
  }

  CUevent_st* create_event() override {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "cudaEventCreate");
    return event;
  }
  void destroy(CUevent_st* event) noexcept override { cudaEventDestroy(event); }
  void record(CUevent_st* event, CUstream_st* stream) override {
    check(cudaEventRecord(event, stream), "cudaEventRecord");
  }
  void order_after(CUstream_st* stream, CUevent_st* event) override {
    check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
  }
  bool reached(CUevent_st* event) override {
    const cudaError_t answer = cudaEventQuery(event);
    if (answer == cudaErrorNotReady) return false;
    check(answer, "cudaEventQuery");
    return true;
  }
  void synchronize(CUevent_st* event) override {
    check(cudaEventSynchronize(event), "cudaEventSynchronize");
  }
  double seconds_between(CUevent_st* begin, CUevent_st* end) override {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
  }

  void begin_capture(CUstream_st* stream) override {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
  }
  CUgraphExec_st* end_capture(CUstream_st* stream) override {
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    cudaGraphExec_t executable = nullptr;
    const cudaError_t answer = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    check(answer, "cudaGraphInstantiate");
    return executable;
  }
  bool captures(CUstream_st* stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }
  void launch(CUgraphExec_st* graph, CUstream_st* stream) override {
    check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
  }
  void destroy(CUgraphExec_st* graph) noexcept override { cudaGraphExecDestroy(graph); }

  std::string failure() noexcept override { return failure_of_work(); }

  std::string driver_version() const override {
    int version = 0;
    check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
    return version_text(version);
  }
  std::string runtime_version() const override {
    int version = 0;
    check(cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
    return version_text(version);
  }

 private:
  static cudaError_t set_device(int device) {
    const cudaError_t answer = cudaSetDevice(device);
    if (answer == cudaSuccess) current_device_ = device;
    return answer;
  }
};

CudaLookup find_runtime() {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  constexpr auto kHint = ", or use --device cpu";
  if (driver == 0) {
    return {nullptr, concat("CUDA: this machine has no NVIDIA driver; CUDA ",
                            version_text(CUDART_VERSION), " needs driver 580 or later", kHint)};
  }
  int count = 0;
  const cudaError_t answer = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (answer == cudaErrorInsufficientDriver) {
    return {nullptr, concat("CUDA: the driver supports CUDA ", version_text(driver),
                            ", this program was built for ", version_text(CUDART_VERSION),
                            "; install driver 580 or later", kHint)};
  }
  if (answer != cudaSuccess || count == 0) {
    return {
        nullptr,
        concat("CUDA: no device: ", cudaGetErrorString(answer),
               "; `nvidia-smi` lists the driver's devices, and CUDA_VISIBLE_DEVICES may hide them",
               kHint)};
  }
  static Runtime runtime;
  return {&runtime, ""};
}

}  // namespace

const CudaLookup& find_cuda() {
  static const CudaLookup found = find_runtime();
  return found;
}

}  // namespace hybrid_trainer
