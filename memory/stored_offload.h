#pragma once

#include <future>

#include "hybrid_trainer/memory/offload_strategy.h"

namespace hybrid_trainer {

/// Storage for the contents of offloaded tensors.
class ContentStore {
 public:
  virtual ~ContentStore() = default;
  /// Copies all slots in stream order. Throws OutOfMemory or IoError, and then stores nothing.
  virtual void keep(const std::vector<OffloadSlot>& slots, const Stream& stream) = 0;
  /// Writes the contents to tensors of the same shapes, from any thread. Throws IoError.
  virtual void write_to(const std::vector<Tensor>& tensors, const Stream& stream) = 0;
  /// Returns whether write_to does more than enqueue work on `stream`.
  virtual bool blocks(const Stream& stream) const {
    return stream.device().type == DeviceType::kCpu && !stream.device().simulated;
  }
  /// Allocates host memory to stage contents that are in a file. `stage` then fills it, from any
  /// thread, and write_to reads from it. Returns false if the contents are not in a file or there
  /// is no memory.
  virtual bool begin_staging() { return false; }
  /// Fills the staging memory. If that fails, write_to reads from the file.
  virtual void stage() {}
  virtual void forget() = 0;
  /// Returns the accuracy of the contents that write_to writes.
  virtual Restored restored() const { return Restored::kBits; }
};

/// Whether the system may swap host memory pages to disk.
enum class Pages { kSwappable, kLocked };

/// Stores copies in another pool, of host memory or a file. Pinned memory is always locked. `keep`
/// throws IoError if other host memory cannot be locked.
class PoolStore final : public ContentStore {
 public:
  /// `staging` is the pool for begin_staging; null disables staging.
  explicit PoolStore(std::shared_ptr<MemoryPool> pool, Pages pages = Pages::kSwappable,
                     std::shared_ptr<MemoryPool> staging = nullptr)
      : host_(std::move(pool)),
        staging_(std::move(staging)),
        locks_(pages == Pages::kLocked && !host_.device().simulated && !host_.pool()->pinned()) {}
  ~PoolStore() override { forget(); }
  void keep(const std::vector<OffloadSlot>& slots, const Stream& stream) override;
  void write_to(const std::vector<Tensor>& tensors, const Stream& stream) override;
  bool blocks(const Stream& stream) const override {
    const bool copies_wait = stream.native() != nullptr && !host_.pool()->pinned();
    return copies_wait || ContentStore::blocks(stream);
  }
  bool begin_staging() override;
  void stage() override;
  void forget() override;

 private:
  Stream host_;
  std::shared_ptr<MemoryPool> staging_;
  bool locks_;
  std::vector<Tensor> copies_;
  std::vector<Tensor> staged_;  // copies of copies_ in memory, if any
};

/// Stores nothing and restores zeros.
class ZeroStore final : public ContentStore {
 public:
  void keep(const std::vector<OffloadSlot>&, const Stream&) override {}
  void write_to(const std::vector<Tensor>& tensors, const Stream& stream) override;
  void forget() override {}
  Restored restored() const override { return Restored::kZeros; }
};

/// Compresses f32 tensors in place, to one byte per element and one scale per block of 256. The
/// error is at most 0.71 % of the largest magnitude in the block, or half of that if no value is
/// negative. If a block contains a NaN or an infinity, all its values become NaN. Tensors of other
/// dtypes, and slots that must not be rounded, are not compressed and keep their memory. Source:
/// Dettmers et al. 2022, "8-bit optimizers via block-wise quantization".
class CompressedStore final : public ContentStore {
 public:
  void keep(const std::vector<OffloadSlot>& slots, const Stream& stream) override;
  void write_to(const std::vector<Tensor>& tensors, const Stream& stream) override;
  /// Returns false, because write_to runs kernels in the calling thread, with the threads of a
  /// step.
  bool blocks(const Stream&) const override { return false; }
  void forget() override { kept_.clear(); }
  Restored restored() const override { return Restored::kRounded; }

 private:
  struct Kept {
    Tensor codes;   // codes, or the tensor itself if it is not compressed
    Tensor scales;  // undefined if the tensor is not compressed
    SlotRounding rounding;
  };
  std::vector<Kept> kept_;
};

/// Offloads tensors to a ContentStore and restores them. If the store blocks and `async` is set, a
/// background thread waits for it; otherwise copies run on a separate stream. Unlike a Prefetcher,
/// moves all tensors together, for a whole phase.
class StoredOffload final : public OffloadStrategy {
 public:
  StoredOffload(std::unique_ptr<ContentStore> store, bool async)
      : store_(std::move(store)), async_(async) {}
  ~StoredOffload() override;
  Location location() const override { return now_; }
  MoveOutResult move_out(std::vector<OffloadSlot> slots, const Stream& stream) override;
  void release_moved_out() override;
  void begin_restore() override;
  void begin_return() override;
  void wait_until_restored() override;
  Restored restored() const override { return store_->restored(); }

 private:
  struct Origin {
    Shape shape;
    DType dtype;
    MemoryKind kind;
  };
  void allocate_returning();
  void start_restore(bool in_background);
  void forget_restored();
  void give_up_restore();

  std::unique_ptr<ContentStore> store_;
  bool async_;
  Location now_ = Location::kResident;
  const Stream* stream_ = nullptr;  // stream of move_out
  std::optional<Stream> transfer_;  // stream of the copies
  Event ready_;                     // start of the copies
  Event moved_out_;                 // end of the copies out
  Event moved_in_;                  // end of the copies in
  std::vector<OffloadSlot> slots_;  // slots of the last move_out
  std::vector<Origin> origins_;     // properties of the slots' tensors
  std::vector<Tensor> leaving_;     // tensors kept until moved_out_
  std::vector<Tensor> returning_;   // new tensors of the slots, which are being filled
  bool store_is_full_ = false;      // whether the store may free its contents after moved_in_
  std::future<double> staging_;     // returns the seconds of staging
  std::future<double> pending_;     // returns the seconds of a restore
};

}  // namespace hybrid_trainer
