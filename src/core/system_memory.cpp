#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#include "hybrid_trainer/core/memory_source.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kSmallPage = 4096;  // from there on files are read into them directly
constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// For any size, which aligned_alloc does not guarantee.
void* take_aligned(std::size_t bytes) noexcept {
  void* data = nullptr;
  return posix_memalign(&data, bytes < kSmallPage ? kCacheLine : kSmallPage, bytes) == 0 ? data
                                                                                         : nullptr;
}

/// Large blocks are mappings of their own, so that freeing them really returns them to the system.
class SystemMemory final : public MemorySource {
 public:
  void* take(std::size_t bytes) noexcept override {
    if (bytes < kHugePage) return take_aligned(bytes);
    void* mapped = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    char* begin = static_cast<char*>(mapped);
    const std::size_t skip =
        (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
    if (skip > 0) munmap(begin, skip);
    if (skip < kHugePage) munmap(begin + skip + bytes, kHugePage - skip);
    madvise(begin + skip, bytes, MADV_HUGEPAGE);
    return begin + skip;
  }

  void give(void* data, std::size_t bytes) noexcept override {
    if (bytes < kHugePage) {
      std::free(data);
    } else {
      munmap(data, bytes);
    }
  }

  Device device() const override { return {}; }
};

}  // namespace

std::unique_ptr<MemorySource> system_memory() { return std::make_unique<SystemMemory>(); }

}  // namespace hybrid_trainer
