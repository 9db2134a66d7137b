#include "src/core/recording.h"

#include <atomic>

#include "src/core/cuda_runtime.h"

namespace hybrid_trainer {

namespace {

/// Size of a simulated slab: larger than any device's memory, so that one slab contains everything.
constexpr std::size_t kEndless = std::size_t{1} << 46;

constexpr std::size_t kSmallestBlock = 256;

std::atomic<std::uint64_t> generation = 0;

/// A source with a single slab, which is a block of another pool.
class SingleBlockSource final : public MemorySource {
 public:
  explicit SingleBlockSource(Buffer block) : block_(std::move(block)) {}
  void* take(std::size_t bytes) noexcept override {
    if (given_ || bytes > block_.bytes()) return nullptr;
    given_ = true;
    return block_.data();
  }
  void give(void*, std::size_t) noexcept override { given_ = false; }
  Device device() const override { return block_.device(); }
  bool prefers_slabs() const override { return true; }

 private:
  Buffer block_;
  bool given_ = false;
};

std::size_t bytes_of(Device device, const std::function<void(const Stream&)>& enqueue) {
  const Stream simulated(MemoryPool::create("device", {}, simulated_memory(device)));
  simulated.pool()->reserve(kEndless, "simulation");
  enqueue(simulated);
  return simulated.pool()->use().extent;
}

/// Ends a failed capture. Ignores errors, such as an invalid capture: the caller has the cause.
void give_up_capture(CudaRuntime& runtime, const Stream& stream) {
  try {
    runtime.destroy(runtime.end_capture(stream.native()));
  } catch (const DeviceError&) {
  }
}

}  // namespace

Recording::Recording(const Stream& stream, const std::function<void(const Stream&)>& enqueue) {
  const std::size_t bytes = std::max(bytes_of(stream.device(), enqueue), kSmallestBlock);
  Buffer block = stream.pool()->allocate(bytes, MemoryKind::kActivations);
  const std::size_t block_bytes = block.bytes();
  pool_ =
      MemoryPool::create("recording", {}, std::make_unique<SingleBlockSource>(std::move(block)));
  pool_->reserve(block_bytes, "a recording");
  CudaRuntime& runtime = cuda_runtime();
  runtime.begin_capture(stream.native());
  try {
    enqueue(Stream(stream, pool_));
  } catch (...) {
    give_up_capture(runtime, stream);
    throw;
  }
  graph_ = runtime.end_capture(stream.native());
}

Recording::~Recording() {
  if (graph_ != nullptr) cuda_runtime().destroy(graph_);
}

Recording::Recording(Recording&& other) noexcept
    : pool_(std::move(other.pool_)), graph_(std::exchange(other.graph_, nullptr)) {}

Recording& Recording::operator=(Recording&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(graph_, other.graph_);
  return *this;
}

void invalidate_recordings() noexcept { ++generation; }

std::uint64_t recording_generation() noexcept { return generation; }

void Recording::replay(const Stream& stream) const {
  cuda_runtime().launch(graph_, stream.native());
}

}  // namespace hybrid_trainer
