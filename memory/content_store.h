#pragma once

#include <memory>
#include <string>
#include <vector>

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

}  // namespace hybrid_trainer
