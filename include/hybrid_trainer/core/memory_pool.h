#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "hybrid_trainer/core/device.h"
#include "hybrid_trainer/core/dtype.h"

namespace hybrid_trainer {

/// Purpose of an allocation. Each allocation counts under exactly one kind.
enum class MemoryKind {
  kParameters,
  kGradients,
  kOptimizerState,
  kActivations,
  kPredictor,
  kSnapshot,
  kWorkspace,
  kData,
  kMasterWeights,  // f32 weights whose bf16 working copies are kParameters
  kLogits,
};
inline constexpr std::size_t kMemoryKinds = 10;
const char* name_of(MemoryKind kind);  // "parameters", "gradients", "optimizer_state", ...

/// Dtype and shape of the tensor in a block; rank 0 if the block stores no tensor.
struct BlockContent {
  DType dtype = DType::kU8;
  Shape shape{};
};

/// A live or requested block of a pool.
struct MemoryBlock {
  static constexpr std::size_t kMaxLabel = 47;
  std::size_t bytes = 0;  // rounded up
  MemoryKind kind = MemoryKind::kWorkspace;
  BlockContent content{};
  std::array<char, kMaxLabel + 1> label{};  // the MemoryLabel, or the end of a long one
  std::string text() const;  // "h.0.attn.c_attn.weight f32 (192, 64)", "activations bf16 (8, 64)"
};

/// Labels allocations of the calling thread during its lifetime, for memory reports: the name of a
/// weight or of a part of the model. The innermost label applies.
class MemoryLabel {
 public:
  /// `name` must outlive this object.
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
  /// Allocates at least `bytes`. Aligns device blocks to 256 bytes, and host blocks to kCacheLine,
  /// to 4 KiB if they have at least 4 KiB, and to 2 MiB if they have at least 2 MiB. Returns
  /// nullptr if out of memory.
  virtual void* take(std::size_t bytes) noexcept = 0;
  virtual void give(void* data, std::size_t bytes) noexcept = 0;
  virtual Device device() const = 0;
  /// Returns whether CUDA copies to and from the memory are asynchronous.
  virtual bool pinned() const { return false; }
  /// Copy between this memory and other host memory, bypassing the page cache. Return false without
  /// copying if a plain copy is as fast. Thread-safe. Throw IoError.
  virtual bool copy_out(void*, const void* /*own*/, std::size_t) { return false; }
  virtual bool copy_in(void* /*own*/, const void*, std::size_t) { return false; }
  /// Returns whether allocation is slow or blocks the device, so pools should allocate large slabs.
  virtual bool prefers_slabs() const { return false; }
  /// Returns whether each block must be allocated separately in its exact size and freed
  /// immediately, so that a memory checker finds out-of-bounds accesses and uses after free.
  virtual bool separates_blocks() const { return false; }
};

/// Returns a source of process memory. Blocks of 2 MiB and more are separate mappings.
std::unique_ptr<MemorySource> system_memory();
/// Returns a source of memory-mapped blocks of an unlinked file in `folder`, with reserved disk
/// space. Uses direct I/O for aligned copies of 256 KiB or more if possible. Throws CannotCreate,
/// naming the config key `key`.
std::unique_ptr<MemorySource> file_memory(const std::string& folder, const char* key);
/// Returns a source of pinned host memory, at most `limit_bytes`. Throws DeviceError without CUDA.
std::unique_ptr<MemorySource> pinned_memory(std::size_t limit_bytes);
/// Returns a source of addresses without memory. `pinned` simulates a CUDA machine's host memory.
std::unique_ptr<MemorySource> simulated_memory(Device device, bool pinned = false);
/// Returns a source of CUDA device memory. Throws DeviceError if there is no such device.
std::unique_ptr<MemorySource> cuda_memory(Device device);

struct MemoryUse {
  std::array<std::size_t, kMemoryKinds> live{};  // current bytes in use, by kind
  std::array<std::size_t, kMemoryKinds> peak{};  // highest live bytes since reset_peaks
  std::size_t live_total = 0;
  std::size_t peak_total = 0;  // highest live_total since the last reset_peaks
  std::size_t extent = 0;      // highest offset ever used in a slab, including gaps between blocks
  std::size_t cached = 0;      // freed bytes kept for reuse
  std::size_t max_taken = 0;   // highest sum of live_total and cached so far; limited by the budget
  std::size_t fresh_total = 0;  // bytes ever allocated from the system
};

/// Returns the live bytes and the name of each kind in use, largest first.
std::vector<std::pair<std::size_t, const char*>> kinds_by_size(const MemoryUse& use);

/// Contents of a pool at a failed allocation.
struct MemoryShortage {
  static constexpr std::size_t kLargest = 10;
  std::string pool;
  MemoryBlock asked;
  std::optional<std::size_t> budget_bytes;  // none: the system ran out of memory
  MemoryUse use;
  std::size_t blocks = 0;            // number of live blocks
  std::vector<MemoryBlock> largest;  // at most kLargest, largest first
};

/// Observer of a pool's blocks. Called with the pool locked: it must not call the pool.
class MemoryListener {
 public:
  virtual ~MemoryListener() = default;
  /// Called after an allocation. `slot` identifies the block until its release. Slots are reused.
  virtual void allocated(std::size_t slot, const MemoryBlock& block) = 0;
  virtual void released(std::size_t slot, const MemoryBlock& block) = 0;
};

class MemoryPool;

/// Owns one block of a MemoryPool. The destructor returns the block to the pool. Move-only.
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
  /// Counts the block under another kind from now on.
  void set_kind(MemoryKind kind);

 private:
  friend class MemoryPool;
  void swap(Buffer& other) noexcept;
  std::shared_ptr<MemoryPool> pool_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  MemoryKind kind_ = MemoryKind::kWorkspace;
  std::size_t slot_ = 0;  // slot of the block in the pool's records
};

/// Counts bytes by kind, reuses freed blocks and can enforce a budget. Aligns blocks to 64 bytes.
/// Blocks of at least 4 KiB have whole pages and are aligned to 4 KiB, and blocks of at least 2 MiB
/// to 2 MiB. Splits and coalesces slabs if the source prefers them. Thread-safe.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  /// Makes a pool whose live and cached bytes never exceed `budget_bytes`; nullopt means no limit.
  static std::shared_ptr<MemoryPool> create(std::string name,
                                            std::optional<std::size_t> budget_bytes = {},
                                            std::unique_ptr<MemorySource> source = system_memory());
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// Allocates uninitialized bytes; `content` describes the tensor. If memory is short, first
  /// returns cached blocks to the system, then throws OutOfMemory with a MemoryShortage.
  Buffer allocate(std::size_t bytes, MemoryKind kind, const BlockContent& content = {});
  MemoryUse use() const;
  /// Reports every live block and all later ones to the listener until nullptr is set. A change of
  /// kind is reported as a release and an allocation.
  void set_listener(MemoryListener* listener);
  void reset_peaks();
  /// Returns cached blocks to the system. Keeps slabs, since freeing them would block the device.
  void trim();
  /// Allocates a slab of at least `bytes` if the source prefers slabs, so that later allocations
  /// use the slab and not the system. Throws OutOfMemory, whose message names `purpose`.
  void reserve(std::size_t bytes, const char* purpose);
  /// See MemorySource::copy_in. `block` points into a block of this pool.
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

/// Makes the pool "device" for tensors used in computation. Throws DeviceError.
std::shared_ptr<MemoryPool> make_device_pool(Device device = {},
                                             std::optional<std::size_t> budget_bytes = {});

/// Makes the pool "host" for offloaded tensors and for batches to upload. For a CPU device it uses
/// pageable memory, for a CUDA device pinned memory of at most half of the available system memory.
std::shared_ptr<MemoryPool> make_host_pool(Device device = {},
                                           std::optional<std::size_t> budget_bytes = {});

/// Makes a pool with the source file_memory in `folder`, which is the value of the config key
/// `key`. For a simulated device, no file is used. Throws CannotCreate.
std::shared_ptr<MemoryPool> make_file_pool(Device device, const std::string& folder,
                                           const char* key);

}  // namespace hybrid_trainer
