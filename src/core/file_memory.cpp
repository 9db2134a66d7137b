#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_source.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kFilePage = 4096;

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

/// Mapped pieces of one unnamed file, whose space on the disk is taken before it is used, so that a
/// full disk is told when a block is asked for and never later.
class FileMemory final : public MemorySource {
 public:
  explicit FileMemory(int file) : file_(file) {}
  ~FileMemory() override { close(file_); }

  void* take(std::size_t bytes) noexcept override {
    const std::size_t size = in_pages(bytes);
    if (posix_fallocate(file_, end_, static_cast<off_t>(size)) != 0) return nullptr;
    void* const data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, end_);
    if (data == MAP_FAILED) return nullptr;
    begins_.emplace(data, end_);
    end_ += static_cast<off_t>(size);
    return data;
  }

  void give(void* data, std::size_t bytes) noexcept override {
    const std::size_t size = in_pages(bytes);
    munmap(data, size);
    const auto begin = begins_.find(data);
    // Where the file system cannot free it, the space stays taken until the file is closed.
    if (fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin->second,
                  static_cast<off_t>(size)) != 0)
      errno = 0;
    begins_.erase(begin);
  }

  Device device() const override { return {}; }

 private:
  int file_;
  off_t end_ = 0;
  std::unordered_map<void*, off_t> begins_;  // in the file
};

}  // namespace

std::unique_ptr<MemorySource> file_memory(const std::string& folder, const char* key) {
  const int file = open_nameless(folder);
  if (file >= 0) return std::make_unique<FileMemory>(file);
  throw CannotCreate(concat(key, ": cannot make a file in ", folder, ": ", std::strerror(errno),
                            "; name a folder that can be written to"));
}

}  // namespace hybrid_trainer
