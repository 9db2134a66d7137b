#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_source.h"
#include "src/core/direct_file.h"
#include "src/core/file_ranges.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kFilePage = DirectFile::kPage;

/// Below, the system's page cache is as good.
constexpr std::size_t kLeastDirect = 1 << 18;

std::size_t in_pages(std::size_t bytes) { return (bytes + kFilePage - 1) / kFilePage * kFilePage; }

/// A new unnamed file in the folder, or -1 with errno.
int open_nameless(const std::string& folder) {
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string path = folder + "/.offload-XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

/// Takes the disk's space for a range of a file; false where the disk is full.
bool take_space(int file, off_t at, off_t bytes) {
  int problem = EINTR;
  while (problem == EINTR) problem = posix_fallocate(file, at, bytes);
  return problem == 0;
}

/// Gives it back. Where the file system cannot, it stays taken until the file is closed.
void free_space(int file, off_t at, off_t bytes) {
  if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, bytes) != 0) errno = 0;
}

/// Mapped pieces of one unnamed file, whose space on the disk is taken before it is used, so that a
/// full disk is told when a block is asked for and never later. What is given back is used again:
/// the file is never longer than its pieces and the gaps between them. Large copies go past the page
/// cache.
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
    off_t at;  // in the file
  };

  void give_range(off_t at, std::size_t bytes) {
    free_space(file_, at, static_cast<off_t>(bytes));
    const off_t end = ranges_.end();
    ranges_.give(at, static_cast<off_t>(bytes));
    if (ranges_.end() < end && ftruncate(file_, ranges_.end()) != 0) errno = 0;  // it stays long
  }

  /// Where in the file an address of its memory lies; none for other addresses.
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

  /// The place of its memory where that and the memory beside it can be moved directly.
  std::optional<off_t> direct_place(const void* own, const void* other, std::size_t bytes) {
    const auto aligned = [](const void* address) {
      return reinterpret_cast<std::uintptr_t>(address) % kFilePage == 0;
    };
    const bool can = direct_.available() && bytes >= kLeastDirect && aligned(own) &&
                     aligned(other) && !place(other);
    return can ? place(own) : std::nullopt;
  }

  int file_;
  DirectFile direct_;
  std::mutex mutex_;  // of what follows
  FileRanges ranges_;
  std::map<const void*, Piece> pieces_;  // by the mapping's address
};

}  // namespace

std::unique_ptr<MemorySource> file_memory(const std::string& folder, const char* key) {
  const int file = open_nameless(folder);
  if (file >= 0) return std::make_unique<FileMemory>(file);
  throw CannotCreate(concat(key, ": cannot make a file in ", folder, ": ", std::strerror(errno),
                            "; name a folder that can be written to"));
}

}  // namespace hybrid_trainer
