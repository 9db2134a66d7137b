#include <fcntl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "src/core/block_store.h"
#include "src/core/cuda_runtime.h"
#include "src/core/messages.h"
#include "src/core/process.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kSmallPage = 4096;  // alignment from this size on, for direct reads
constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Allocates aligned memory of any size; aligned_alloc requires multiples of the alignment.
void* take_aligned(std::size_t bytes) noexcept {
  void* data = nullptr;
  return posix_memalign(&data, bytes < kSmallPage ? kCacheLine : kSmallPage, bytes) == 0 ? data
                                                                                         : nullptr;
}

/// Process memory. Large blocks are separate mappings, whose freed memory returns to the system.
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

/// A file for direct I/O (O_DIRECT) in aligned pages, coherent with its mappings. Thread-safe.
class DirectFile {
 public:
  static constexpr std::size_t kPage = 4096;
  /// Reopens an open file for direct I/O, which its file system may not support.
  explicit DirectFile(int file)
      : file_(open(("/proc/self/fd/" + std::to_string(file)).c_str(),
                   O_RDWR | O_DIRECT | O_CLOEXEC)) {}
  ~DirectFile() {
    if (file_ >= 0) close(file_);
  }
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;
  bool available() const { return file_ >= 0; }
  /// Returns false if the file system does not support the transfer. Throws IoError.
  bool read(void* to, off_t at, std::size_t bytes) const;
  bool write(const void* from, off_t at, std::size_t bytes) const;

 private:
  int file_;
};

/// Bytes per call: large enough to keep the disk busy, small enough to react to signals quickly.
constexpr std::size_t kMaxAtATime = std::size_t{4} << 20;

/// Calls transfer(offset, bytes), which returns like pread, until all bytes are transferred.
/// Returns false if the file system refuses the transfer.
template <class Transfer>
bool in_pieces(std::size_t bytes, const char* verb, const Transfer& transfer) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t moved = transfer(done, std::min(kMaxAtATime, bytes - done));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && errno == EINVAL) return false;
    if (moved <= 0)
      throw IoError(concat("cannot ", verb, " the scratch file: ",
                           moved == 0 ? "the file is too short" : std::strerror(errno),
                           "; see memory.folder"));
    done += static_cast<std::size_t>(moved);
  }
  return true;
}

bool DirectFile::read(void* to, off_t at, std::size_t bytes) const {
  return in_pieces(bytes, "read", [&](std::size_t offset, std::size_t size) {
    count_progress();
    return pread(file_, static_cast<char*>(to) + offset, size, at + static_cast<off_t>(offset));
  });
}

bool DirectFile::write(const void* from, off_t at, std::size_t bytes) const {
  return in_pieces(bytes, "write", [&](std::size_t offset, std::size_t size) {
    count_progress();
    return pwrite(file_, static_cast<const char*>(from) + offset, size,
                  at + static_cast<off_t>(offset));
  });
}

constexpr std::size_t kFilePage = DirectFile::kPage;

/// Minimum size of direct I/O. Smaller copies use the page cache.
constexpr std::size_t kMinDirect = 1 << 18;

std::size_t in_pages(std::size_t bytes) { return (bytes + kFilePage - 1) / kFilePage * kFilePage; }

int open_nameless(const std::string& folder) {
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string path = folder + "/.offload-XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

/// Reserves disk space for a range of a file. Returns false if the disk is full.
bool take_space(int file, off_t at, off_t bytes) {
  int problem = EINTR;
  while (problem == EINTR) problem = posix_fallocate(file, at, bytes);
  return problem == 0;
}

/// Frees the disk space of a range. If the file system cannot, closing the file frees it.
void free_space(int file, off_t at, off_t bytes) {
  if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, bytes) != 0) errno = 0;
}

/// Mapped ranges of one unlinked file. Disk space is reserved at allocation, so that a full disk
/// fails there and not at a later access. Freed ranges are reused. Large copies use direct I/O.
class FileMemory final : public MemorySource {
 public:
  explicit FileMemory(int file) : file_(file), direct_(file) {}
  ~FileMemory() override { close(file_); }

  void* take(std::size_t bytes) noexcept override {
    const std::size_t size = in_pages(bytes);
    const std::lock_guard lock(mutex_);
    const off_t at = ranges_.take(static_cast<off_t>(size));
    if (take_space(file_, at, static_cast<off_t>(size))) {
      void* const data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, at);
      if (data != MAP_FAILED) {
        pieces_.emplace(data, Piece{size, at});
        return data;
      }
    }
    give_range(at, size);
    return nullptr;
  }

  void give(void* data, std::size_t bytes) noexcept override {
    const std::size_t size = in_pages(bytes);
    const std::lock_guard lock(mutex_);
    const auto piece = pieces_.find(data);
    munmap(data, size);
    give_range(piece->second.at, size);
    pieces_.erase(piece);
  }

  Device device() const override { return {}; }

  bool copy_out(void* to, const void* own, std::size_t bytes) override {
    const auto at = direct_place(own, to, bytes);
    if (!at) return false;
    const std::size_t pages = bytes / kFilePage * kFilePage;
    if (!direct_.read(to, *at, pages)) return false;
    std::memcpy(static_cast<char*>(to) + pages, static_cast<const char*>(own) + pages,
                bytes - pages);
    return true;
  }

  bool copy_in(void* own, const void* from, std::size_t bytes) override {
    const auto at = direct_place(own, from, bytes);
    if (!at) return false;
    const std::size_t pages = bytes / kFilePage * kFilePage;
    if (!direct_.write(from, *at, pages)) return false;
    std::memcpy(static_cast<char*>(own) + pages, static_cast<const char*>(from) + pages,
                bytes - pages);
    return true;
  }

 private:
  struct Piece {
    std::size_t bytes;
    off_t at;  // offset in the file
  };

  void give_range(off_t at, std::size_t bytes) {
    free_space(file_, at, static_cast<off_t>(bytes));
    const off_t end = ranges_.end();
    ranges_.give(at, static_cast<off_t>(bytes));
    if (ranges_.end() < end && ftruncate(file_, ranges_.end()) != 0) errno = 0;
  }

  std::optional<off_t> place(const void* address) {
    const std::lock_guard lock(mutex_);
    auto piece = pieces_.upper_bound(address);
    if (piece == pieces_.begin()) return {};
    --piece;
    const auto offset = static_cast<std::size_t>(static_cast<const char*>(address) -
                                                 static_cast<const char*>(piece->first));
    if (offset >= piece->second.bytes) return {};
    return piece->second.at + static_cast<off_t>(offset);
  }

  /// Returns the file offset if both sides of a copy permit direct I/O.
  std::optional<off_t> direct_place(const void* own, const void* other, std::size_t bytes) {
    const auto aligned = [](const void* address) {
      return reinterpret_cast<std::uintptr_t>(address) % kFilePage == 0;
    };
    const bool can = direct_.available() && bytes >= kMinDirect && aligned(own) && aligned(other) &&
                     !place(other);
    return can ? place(own) : std::nullopt;
  }

  int file_;
  DirectFile direct_;
  std::mutex mutex_;  // guards the members below
  FileRanges ranges_;
  std::map<const void*, Piece> pieces_;  // keyed by the mapping's address
};

class PinnedMemory final : public MemorySource {
 public:
  PinnedMemory(CudaRuntime& runtime, std::size_t limit_bytes)
      : runtime_(runtime), limit_bytes_(limit_bytes) {}

  void* take(std::size_t bytes) noexcept override {
    if (taken_bytes_ + bytes > limit_bytes_) return nullptr;
    void* data = runtime_.allocate_pinned(bytes);
    if (data != nullptr) taken_bytes_ += bytes;
    return data;
  }

  void give(void* data, std::size_t bytes) noexcept override {
    runtime_.release_pinned(data);
    taken_bytes_ -= bytes;
  }

  Device device() const override { return {}; }
  bool pinned() const override { return true; }
  bool prefers_slabs() const override { return true; }

 private:
  CudaRuntime& runtime_;
  std::size_t limit_bytes_;
  std::atomic<std::size_t> taken_bytes_ = 0;
};

class CudaMemory final : public MemorySource {
 public:
  CudaMemory(CudaRuntime& runtime, Device device) : runtime_(runtime), device_(device) {}
  void* take(std::size_t bytes) noexcept override {
    return runtime_.allocate(device_.index, bytes);
  }
  void give(void* data, std::size_t) noexcept override { runtime_.release(device_.index, data); }
  Device device() const override { return device_; }
  bool prefers_slabs() const override { return true; }

 private:
  CudaRuntime& runtime_;
  Device device_;
};

class SimulatedMemory final : public MemorySource {
 public:
  SimulatedMemory(Device device, bool pinned)
      : device_{device.type, device.index, true}, pinned_(pinned) {}
  void* take(std::size_t bytes) noexcept override {
    const std::uintptr_t begin = next_;
    next_ += (bytes + kGap) / kGap * kGap;
    return reinterpret_cast<void*>(begin);
  }
  void give(void*, std::size_t) noexcept override {}
  Device device() const override { return device_; }
  bool pinned() const override { return pinned_; }
  bool prefers_slabs() const override { return pinned_ || device_.type == DeviceType::kCuda; }

 private:
  static constexpr std::size_t kGap = std::size_t{1} << 20;
  Device device_;
  bool pinned_;
  std::uintptr_t next_ = kGap;
};

}  // namespace

std::unique_ptr<MemorySource> system_memory() { return std::make_unique<SystemMemory>(); }

std::unique_ptr<MemorySource> file_memory(const std::string& folder, const char* key) {
  const int file = open_nameless(folder);
  if (file >= 0) return std::make_unique<FileMemory>(file);
  throw CannotCreate(concat(key, ": cannot create a file in ", folder, ": ", std::strerror(errno),
                            "; want a writable folder"));
}

std::unique_ptr<MemorySource> simulated_memory(Device device, bool pinned) {
  return std::make_unique<SimulatedMemory>(device, pinned);
}

std::unique_ptr<MemorySource> pinned_memory(std::size_t limit_bytes) {
  return std::make_unique<PinnedMemory>(cuda_runtime(), limit_bytes);
}

bool is_short_of_device_memory(int device) noexcept {
  constexpr std::size_t kScarce = std::size_t{256} << 20;
  try {
    return cuda_runtime().properties(device).free_bytes < kScarce;
  } catch (const std::exception&) {  // after a kernel fault every call fails
    return false;
  }
}

void throw_out_of_device_memory(const std::string& what, int device) {
  const std::size_t free = cuda_runtime().properties(device).free_bytes;
  throw OutOfMemory(
      concat(what, ": ", name_of(Device{DeviceType::kCuda, device}), " has ", units::bytes(free),
             " free outside this program, but CUDA and its libraries need memory for their kernels",
             "; leave about 1 GiB: lower memory.device_budget or data.batch_size, set ",
             "memory.plan=auto, or end other programs on the device (`nvidia-smi` lists them)"),
      0, free);
}

std::unique_ptr<MemorySource> cuda_memory(Device device) {
  return std::make_unique<CudaMemory>(cuda_runtime(), device);
}

}  // namespace hybrid_trainer
