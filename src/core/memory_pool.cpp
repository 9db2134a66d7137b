#include "hybrid_trainer/core/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kLine = 64;

/// Whole lines below 4 KiB, whole pages from there on: near sizes share blocks, and little is lost.
std::size_t rounded(std::size_t bytes) {
  const std::size_t step = bytes < kPage ? kLine : kPage;
  return (bytes + step - 1) / step * step;
}

/// Large blocks are mappings of their own, so that what is given back really leaves the process.
void* take_from_system(std::size_t bytes) {
  if (bytes < kHugePage) return std::aligned_alloc(kLine, bytes);
  void* mapped =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(mapped);
  const std::size_t skip =
      (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  if (skip > 0) munmap(begin, skip);
  if (skip < kHugePage) munmap(begin + skip + bytes, kHugePage - skip);
  madvise(begin + skip, bytes, MADV_HUGEPAGE);
  return begin + skip;
}

void give_to_system(void* data, std::size_t bytes) noexcept {
  if (bytes < kHugePage) {
    std::free(data);
  } else {
    munmap(data, bytes);
  }
}

}  // namespace

const char* name_of(MemoryKind kind) {
  constexpr std::array<const char*, kMemoryKinds> names{
      "parameters", "gradients", "optimizer_state", "activations",
      "predictor",  "snapshot",  "workspace",       "data"};
  return names[static_cast<std::size_t>(kind)];
}

struct MemoryPool::Blocks {
  mutable std::mutex mutex;
  std::map<std::size_t, std::vector<void*>> cached;  // free blocks by rounded size
  MemoryUse use;
};

Buffer::~Buffer() {
  if (data_ != nullptr) pool_->release(data_, bytes_, kind_);
}

void Buffer::swap(Buffer& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(kind_, other.kind_);
}

std::shared_ptr<MemoryPool> MemoryPool::create(std::string name,
                                               std::optional<std::size_t> budget_bytes) {
  return std::shared_ptr<MemoryPool>(new MemoryPool(std::move(name), budget_bytes));
}

MemoryPool::MemoryPool(std::string name, std::optional<std::size_t> budget_bytes)
    : name_(std::move(name)), budget_bytes_(budget_bytes), blocks_(std::make_unique<Blocks>()) {}

MemoryPool::~MemoryPool() { trim(); }

Buffer MemoryPool::allocate(std::size_t bytes, MemoryKind kind) {
  const std::size_t size = rounded(bytes == 0 ? 1 : bytes);
  std::unique_lock lock(blocks_->mutex);
  MemoryUse& use = blocks_->use;
  void* data = nullptr;
  if (auto found = blocks_->cached.find(size);
      found != blocks_->cached.end() && !found->second.empty()) {
    data = found->second.back();
    found->second.pop_back();
    use.cached -= size;
  } else {
    const auto over = [&] {
      return budget_bytes_ && use.live_total + use.cached + size > *budget_bytes_;
    };
    const auto trimmed = [&] {
      lock.unlock();
      trim();
      lock.lock();
    };
    if (over()) trimmed();
    if (!over()) data = take_from_system(size);
    if (data == nullptr && !over()) {
      trimmed();
      data = take_from_system(size);
    }
    if (data == nullptr) {
      const std::size_t available =
          budget_bytes_ ? *budget_bytes_ - std::min(*budget_bytes_, use.live_total) : 0;
      throw OutOfMemory(
          concat(name_, " memory: asked for ", size, " bytes of ", name_of(kind), ", ",
                 use.live_total, " in use, ",
                 budget_bytes_ ? concat("budget ", *budget_bytes_) : "the system has no more",
                 "; lower data.batch_size or data.sequence_length"),
          size, available);
    }
    use.fresh_total += size;
  }
  const auto k = static_cast<std::size_t>(kind);
  use.live[k] += size;
  use.live_total += size;
  use.peak[k] = std::max(use.peak[k], use.live[k]);
  use.peak_total = std::max(use.peak_total, use.live_total);
  Buffer buffer;
  buffer.pool_ = shared_from_this();
  buffer.data_ = data;
  buffer.bytes_ = size;
  buffer.kind_ = kind;
  return buffer;
}

void MemoryPool::release(void* data, std::size_t bytes, MemoryKind kind) noexcept {
  std::lock_guard lock(blocks_->mutex);
  blocks_->use.live[static_cast<std::size_t>(kind)] -= bytes;
  blocks_->use.live_total -= bytes;
  blocks_->cached[bytes].push_back(data);
  blocks_->use.cached += bytes;
}

MemoryUse MemoryPool::use() const {
  std::lock_guard lock(blocks_->mutex);
  return blocks_->use;
}

void MemoryPool::reset_peaks() {
  std::lock_guard lock(blocks_->mutex);
  blocks_->use.peak = blocks_->use.live;
  blocks_->use.peak_total = blocks_->use.live_total;
}

void MemoryPool::trim() {
  std::lock_guard lock(blocks_->mutex);
  for (auto& [size, blocks] : blocks_->cached) {
    for (void* block : blocks) give_to_system(block, size);
  }
  blocks_->cached.clear();
  blocks_->use.cached = 0;
}

}  // namespace hybrid_trainer
