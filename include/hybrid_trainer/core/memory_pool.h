#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hybrid_trainer/core/memory_block.h"
#include "hybrid_trainer/core/memory_source.h"

namespace hybrid_trainer {

struct MemoryUse {
  std::array<std::size_t, kMemoryKinds> live{};  // bytes in use now, by kind
  /// Highest live bytes of each kind since the last reset_peaks.
  std::array<std::size_t, kMemoryKinds> peak{};
  std::size_t live_total = 0;
  std::size_t peak_total = 0;  // highest live_total since the last reset_peaks
  std::size_t extent = 0;      // most of a slab ever in use, including the gaps between blocks
  std::size_t cached = 0;      // freed bytes kept for reuse
  std::size_t most_taken = 0;  // highest sum of live_total and cached ever; a budget bounds it
  /// Bytes ever taken from the system: unchanged over a step that allocates nothing.
  std::size_t fresh_total = 0;
};

/// The bytes in use of each kind that has any, with its name, the largest first.
std::vector<std::pair<std::size_t, const char*>> kinds_by_size(const MemoryUse& use);

/// Contents of a pool when it could not serve a request.
struct MemoryShortage {
  static constexpr std::size_t kLargest = 10;
  std::string pool;
  MemoryBlock asked;
  std::optional<std::size_t> budget_bytes;  // none: the system had no more
  MemoryUse use;
  std::size_t blocks = 0;            // live ones
  std::vector<MemoryBlock> largest;  // of them, at most kLargest, the largest first
};

/// Is told of a pool's blocks. Called under the pool's lock: it must not call the pool.
class MemoryListener {
 public:
  virtual ~MemoryListener() = default;
  /// `slot` is the block's own until it is released, and below the most blocks ever live at once.
  virtual void allocated(std::size_t slot, const MemoryBlock& block) = 0;
  virtual void released(std::size_t slot, const MemoryBlock& block) = 0;
};

class MemoryPool;

/// Owner of one block of a MemoryPool. Move-only; returns the block when destroyed.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~Buffer();
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  MemoryKind kind() const { return kind_; }
  const std::shared_ptr<MemoryPool>& pool() const { return pool_; }
  Device device() const;
  bool pinned() const;
  /// Accounts the block under another kind from now on.
  void set_kind(MemoryKind kind);

 private:
  friend class MemoryPool;
  void swap(Buffer& other) noexcept;
  std::shared_ptr<MemoryPool> pool_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  MemoryKind kind_ = MemoryKind::kWorkspace;
  std::size_t slot_ = 0;  // of the pool's record of it
};

/// A pool of memory that counts by kind, reuses freed blocks and may have a hard budget. On a
/// processor, "device memory" is one such pool, and the "host memory" that things are offloaded to
/// is another. Blocks are aligned to 64 bytes, to 4 KiB from 4 KiB on, where sizes
/// are rounded up to whole pages, and to 2 MiB from 2 MiB on. A source that prefers slabs is asked for large ones, from which
/// blocks are cut and into which they merge again; one that keeps blocks apart is asked for each
/// block in its exact size. Thread-safe.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  /// `budget_bytes`: live and cached bytes never exceed it; none means no limit.
  static std::shared_ptr<MemoryPool> create(std::string name,
                                            std::optional<std::size_t> budget_bytes = {},
                                            std::unique_ptr<MemorySource> source = system_memory());
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// Uninitialised bytes, for a tensor of `content` where there is one. Throws OutOfMemory, which
  /// names pool, request, budget and the largest blocks, and has a MemoryShortage, if returning
  /// cached blocks to the system did not help.
  Buffer allocate(std::size_t bytes, MemoryKind kind, const BlockContent& content = {});
  MemoryUse use() const;
  /// Told of each block that lives now and of all that follow, until nullptr is set; a block that
  /// changes its kind is released and allocated. It must outlive that.
  void set_listener(MemoryListener* listener);
  void reset_peaks();
  /// Returns the cached blocks to the system; but not the slabs of a source that prefers them,
  /// since taking or returning one would block the device.
  void trim();
  /// Takes one slab of at least this size now, if the source prefers slabs, so that later
  /// allocations up to that size take nothing from the system. Throws OutOfMemory, which says what
  /// it was `wanted_for`.
  void reserve(std::size_t bytes, const char* wanted_for);
  /// See MemorySource::copy_in; `block` lies in one of this pool.
  bool copy_in(void* block, const void* from, std::size_t bytes) const {
    return source_->copy_in(block, from, bytes);
  }
  bool copy_out(void* to, const void* block, std::size_t bytes) const {
    return source_->copy_out(to, block, bytes);
  }
  const std::string& name() const { return name_; }
  Device device() const { return source_->device(); }
  bool pinned() const { return source_->pinned(); }

 private:
  friend class Buffer;
  MemoryPool(std::string name, std::optional<std::size_t> budget_bytes,
             std::unique_ptr<MemorySource> source);
  void* find(std::size_t size);
  [[noreturn]] void throw_out_of_memory(const MemoryBlock& asked, const char* what) const;
  MemoryUse use_now() const;
  void release(const Buffer& buffer) noexcept;
  void move_kind(const Buffer& buffer, MemoryKind to);
  struct Blocks;
  std::string name_;
  std::optional<std::size_t> budget_bytes_;
  std::unique_ptr<MemorySource> source_;
  std::unique_ptr<Blocks> blocks_;
};

}  // namespace hybrid_trainer
