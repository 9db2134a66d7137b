#pragma once

#include <future>
#include <optional>

#include "hybrid_trainer/memory/offload_strategy.h"

namespace hybrid_trainer {

/// Where the contents of offloaded tensors are kept.
class ContentStore {
 public:
  virtual ~ContentStore() = default;
  /// Keeps a copy of all, made in stream order. Throws OutOfMemory or IoError, then holds nothing.
  virtual void keep(const std::vector<OffloadSlot>& slots, const Stream& stream) = 0;
  /// Writes what keep was given into tensors of the same shapes, in any thread. Throws IoError.
  virtual void write_to(const std::vector<Tensor>& tensors, const Stream& stream) = 0;
  /// False where write_to only enqueues on such a stream.
  virtual bool blocks(const Stream& stream) const {
    return stream.device().type == DeviceType::kCpu && !stream.device().simulated;
  }
  /// Takes host memory for what lies on a slow medium; false where there is no such medium or no
  /// such memory. Then stage fills it, in any thread, and write_to reads it there.
  virtual bool begin_staging() { return false; }
  /// Where it fails, write_to reads from where it was.
  virtual void stage() {}
  /// Frees the space.
  virtual void forget() = 0;
  /// What write_to writes.
  virtual Restored restored() const { return Restored::kBits; }
};

/// Whether the system may write pages of host memory to its swap space.
enum class Pages { kSwappable, kLocked };

/// Copies in another pool, of host memory or in a file, of their own kinds. Pinned memory is locked
/// in any case; where other memory cannot be, keep throws IoError.
class PoolStore final : public ContentStore {
 public:
  /// `staging`: where begin_staging takes its memory; null where nothing is staged.
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

/// Keeps nothing and gives zeros.
class ZeroStore final : public ContentStore {
 public:
  void keep(const std::vector<OffloadSlot>&, const Stream&) override {}
  void write_to(const std::vector<Tensor>& tensors, const Stream& stream) override;
  void forget() override {}
  Restored restored() const override { return Restored::kZeros; }
};

/// Keeps f32 tensors where they are, in one byte an element and a scale for each block of 256. What
/// comes back differs by at most 0.71 % of the largest magnitude in its block, by half of that
/// where nothing is negative; a NaN or an infinity comes back as NaN in its whole block. Tensors of
/// other types, and those that are not to be rounded, keep their memory and their bits. Source: Dettmers et al. 2022, "8-bit optimizers
/// via block-wise quantization".
class CompressedStore final : public ContentStore {
 public:
  void keep(const std::vector<OffloadSlot>& slots, const Stream& stream) override;
  void write_to(const std::vector<Tensor>& tensors, const Stream& stream) override;
  /// The kernels run here, on the threads that a step's do.
  bool blocks(const Stream&) const override { return false; }
  void forget() override { kept_.clear(); }
  Restored restored() const override { return Restored::kRounded; }

 private:
  struct Kept {
    Tensor codes;   // or the tensor itself
    Tensor scales;  // undefined for the tensor itself
    SlotRounding rounding;
  };
  std::vector<Kept> kept_;
};

/// Offloads tensors to a ContentStore and restores them: if the store blocks, in a background
/// thread when `async`; otherwise by copies on a stream of its own. It is no Prefetcher: all tensors
/// leave together for a whole phase, and come back when the phase asks for them.
class StoredOffload final : public OffloadStrategy {
 public:
  StoredOffload(std::unique_ptr<ContentStore> store, bool async)
      : store_(std::move(store)), async_(async) {}
  ~StoredOffload() override;
  Whereabouts whereabouts() const override { return now_; }
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
  void forget_what_is_back();
  void give_up_restore();

  std::unique_ptr<ContentStore> store_;
  bool async_;
  Whereabouts now_ = Whereabouts::kResident;
  const Stream* stream_ = nullptr;  // the one given to move_out
  std::optional<Stream> transfer_;  // for the copies
  Event ready_;                     // what the copies must come after
  Event moved_out_;                 // the copies out are done
  Event moved_in_;                  // the copies in are done
  std::vector<OffloadSlot> slots_;  // of the last move_out
  std::vector<Origin> origins_;     // of the slots' tensors
  std::vector<Tensor> leaving_;     // until moved_out_
  std::vector<Tensor> returning_;   // the slots' new tensors, being filled
  bool store_is_full_ = false;      // it may forget once moved_in_ is reached
  std::future<double> staging_;     // gives the seconds that it took
  std::future<double> pending_;     // the same
};

}  // namespace hybrid_trainer
