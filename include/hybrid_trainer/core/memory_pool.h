#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "hybrid_trainer/core/device.h"
#include "hybrid_trainer/core/dtype.h"

namespace hybrid_trainer {

/// Purpose of bytes; every allocation is accounted under one kind.
enum class MemoryKind {
  kParameters,
  kGradients,
  kOptimizerState,
  kActivations,
  kPredictor,
  kSnapshot,
  kWorkspace,
  kData,
  kMasterWeights,  // f32, where bf16 copies of them compute as kParameters
  kLogits,
};
inline constexpr std::size_t kMemoryKinds = 10;
const char* name_of(MemoryKind kind);  // "parameters", "gradients", "optimizer_state", ...

/// The tensor that a block is for; of rank 0 where it is for none.
struct BlockContent {
  DType dtype = DType::kU8;
  Shape shape{};
};

/// A live block of a pool, or one that was asked for.
struct MemoryBlock {
  static constexpr std::size_t kMostLabel = 47;
  std::size_t bytes = 0;  // with what rounding up adds
  MemoryKind kind = MemoryKind::kWorkspace;
  BlockContent content{};
  std::array<char, kMostLabel + 1> label{};  // of the MemoryLabel then; its end, if it is longer
  std::string text() const;  // "h.0.attn.c_attn.weight f32 (192, 64)", "activations bf16 (8, 64)"
};

/// Names what the calling thread allocates while it lives, such as a weight or a part of the model,
/// so that reports say where memory went. The innermost label counts.
class MemoryLabel {
 public:
  /// `name` must outlive it.
  explicit MemoryLabel(std::string_view name);
  ~MemoryLabel();
  MemoryLabel(const MemoryLabel&) = delete;
  MemoryLabel& operator=(const MemoryLabel&) = delete;
  static std::string_view current();  // "" without one

 private:
  std::string_view outer_;
};

inline constexpr std::size_t kCacheLine = 64;

/// Source of a MemoryPool's bytes.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// At least `bytes`, aligned to kCacheLine (4 KiB from 4 KiB on, 2 MiB from 2 MiB on) on the host and to 256 on a
  /// device; nullptr if out of memory.
  virtual void* take(std::size_t bytes) noexcept = 0;
  virtual void give(void* data, std::size_t bytes) noexcept = 0;
  /// The device that the memory is on.
  virtual Device device() const = 0;
  /// True if a CUDA device can copy to and from it directly, overlapping other work.
  virtual bool pinned() const { return false; }
  /// Copies from its memory to other host memory, or there from other, without the system's page
  /// cache between; false, and nothing done, where that is no use: then plain copies serve. In any
  /// thread. Throws IoError.
  virtual bool copy_out(void*, const void* /*own*/, std::size_t) { return false; }
  virtual bool copy_in(void* /*own*/, const void*, std::size_t) { return false; }
  /// True if taking is slow or blocks the device, so that pools should take much at once.
  virtual bool prefers_slabs() const { return false; }
  /// True if each block must be taken separately, in exactly the size asked for, and given back at
  /// once, so that a memory checker finds accesses past its end or after its lifetime.
  virtual bool keeps_blocks_apart() const { return false; }
};

/// The process's memory; blocks from 2 MiB on are mappings of their own.
std::unique_ptr<MemorySource> system_memory();
/// Mapped pieces of an unnamed file in `folder`, which disappears with the process in any case. The
/// disk's space is taken with each block; copies from 1 MiB on go past the page cache where the file
/// system has a way. Throws CannotCreate, which names `key`, the config's key that chose the folder.
std::unique_ptr<MemorySource> file_memory(const std::string& folder, const char* key);
/// Page-locked memory of the process, at most `limit_bytes` of it. Throws DeviceError where there
/// is no CUDA.
std::unique_ptr<MemorySource> pinned_memory(std::size_t limit_bytes);
/// Addresses without memory behind them, in the blocks that the device's own memory would give;
/// `pinned`: as the memory of a host beside a CUDA device.
std::unique_ptr<MemorySource> simulated_memory(Device device, bool pinned = false);
/// Plain memory of a CUDA device. Throws DeviceError where there is none.
std::unique_ptr<MemorySource> cuda_memory(Device device);

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

/// The pool "device" on a device, for tensors used in computation. Throws DeviceError.
std::shared_ptr<MemoryPool> make_device_pool(Device device = {},
                                             std::optional<std::size_t> budget_bytes = {});

/// The pool "host" for what is kept out of device memory, and for batches to be uploaded: plain
/// memory beside a processor, pinned memory beside a CUDA device, at most half of what the system
/// has available.
std::shared_ptr<MemoryPool> make_host_pool(Device device = {},
                                           std::optional<std::size_t> budget_bytes = {});

/// A pool whose blocks lie in an unnamed file in the folder that the config's `key` names; beside a
/// simulated device there is none. Throws CannotCreate.
std::shared_ptr<MemoryPool> make_file_pool(Device device, const std::string& folder,
                                           const char* key);

}  // namespace hybrid_trainer
