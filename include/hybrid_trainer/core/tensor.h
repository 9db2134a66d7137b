#pragma once

#include "hybrid_trainer/core/dtype.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/stream.h"

namespace hybrid_trainer {

/// A contiguous row-major view of a shared Buffer. Copying a Tensor copies the view, not the
/// elements. When the last view is destroyed, the memory returns to its pool.
class Tensor {
 public:
  Tensor() = default;  // no elements, no memory

  /// Allocates uninitialized elements from the stream's pool. Throws OutOfMemory.
  static Tensor empty(const Shape& shape, DType dtype, MemoryKind kind, const Stream& stream);
  static Tensor zeros(const Shape& shape, DType dtype, MemoryKind kind, const Stream& stream);
  static Tensor empty_like(const Tensor& other, MemoryKind kind, const Stream& stream) {
    return empty(other.shape(), other.dtype(), kind, stream);
  }

  bool defined() const { return buffer_ != nullptr; }
  explicit operator bool() const { return defined(); }
  const Shape& shape() const { return shape_; }
  std::int64_t size(int dimension) const { return shape_[dimension]; }
  DType dtype() const { return dtype_; }
  std::int64_t elements() const { return shape_.elements(); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype_); }

  /// Returns a pointer to the first element. Throws Error if T does not match the dtype.
  template <class T>
  T* data() const {
    if (DTypeOf<T>::value != dtype_) throw_wrong_dtype(DTypeOf<T>::value);
    return static_cast<T*>(raw());
  }
  void* raw() const {
    return buffer_ ? static_cast<char*>(buffer_->data()) + offset_bytes_ : nullptr;
  }

  /// Counts the whole block under another kind.
  void set_kind(MemoryKind kind) const { buffer_->set_kind(kind); }
  MemoryKind kind() const { return buffer_ ? buffer_->kind() : MemoryKind::kWorkspace; }
  std::shared_ptr<MemoryPool> pool() const { return buffer_ ? buffer_->pool() : nullptr; }
  Device device() const { return buffer_ ? buffer_->device() : Device{}; }
  /// Returns whether CUDA copies to and from the tensor are asynchronous.
  bool pinned() const { return buffer_ && buffer_->pinned(); }

  /// Returns a view with another shape. Throws ShapeMismatch if the number of elements differs.
  Tensor view(const Shape& shape) const;
  /// Returns a matrix view that flattens all dimensions except the last. The last dimension must
  /// not be 0. Returns an undefined tensor if this tensor is undefined.
  Tensor as_rows() const;
  /// Returns a view of the rows [begin, end) of dimension 0.
  Tensor rows(std::int64_t begin, std::int64_t end) const;

 private:
  friend class TensorIdentity;
  [[noreturn]] void throw_wrong_dtype(DType asked) const;
  std::shared_ptr<Buffer> buffer_;
  std::size_t offset_bytes_ = 0;
  Shape shape_;
  DType dtype_ = DType::kF32;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Identity of a tensor's elements, without keeping them alive.
class TensorIdentity {
 public:
  explicit TensorIdentity(const Tensor& tensor)
      : buffer_(tensor.buffer_), elements_(tensor.raw()), bytes_(tensor.bytes()) {}
  bool is_of(const Tensor& tensor) const {
    return tensor.defined() && buffer_.lock() == tensor.buffer_ && elements_ == tensor.raw() &&
           bytes_ == tensor.bytes();
  }

 private:
  std::weak_ptr<Buffer> buffer_;
  const void* elements_;
  std::size_t bytes_;
};

/// Copies elements in stream order between tensors of equal shape and dtype, on one device or
/// between a CUDA device and pinned host memory. Keep both unchanged until the copy is done. Throws
/// Error if only a blocking copy is possible.
void copy(const Tensor& destination, const Tensor& source, const Stream& stream);
/// Copies between any two memories. Blocks until the copy is done.
void wait_for_copy(const Tensor& destination, const Tensor& source, const Stream& stream);
/// Enqueues the copy if possible, else blocks.
void copy_or_wait(const Tensor& destination, const Tensor& source, const Stream& stream);
/// Copies between host memories in the calling thread only. Throws IoError.
void copy_in_this_thread(const Tensor& destination, const Tensor& source);
void fill_zero(const Tensor& tensor, const Stream& stream);

/// Returns the tensor itself or a copy in host memory. Blocks until the stream's work is done.
Tensor wait_for_host(const Tensor& tensor, const Stream& stream);
/// Returns the tensor if it is on the stream's device, else a copy of the same kind on that device.
Tensor wait_for_device(const Tensor& tensor, const Stream& stream);

class Prefetcher;

/// How a computation accesses a tensor.
enum class Use { kRead, kWrite, kChange };

/// Provides a tensor in the stream's pool: itself or a copy of the same MemoryKind, which the
/// destructor writes back if modified. Copies are in stream order; on CUDA, copies of pageable
/// memory block. An undefined tensor stays undefined. Constructor and destructor may throw IoError.
class StagedTensor {
 public:
  /// Copies the tensor if it is not on the stream's device.
  StagedTensor(const Tensor& tensor, Use use, const Stream& stream)
      : StagedTensor(tensor, use, stream, tensor.device().type != stream.device().type) {}
  /// Copies the tensor if `needs_copy` is set, with `prefetcher` if it is not null. The destructor
  /// then does not throw; a later call of the prefetcher throws the error of the write.
  StagedTensor(const Tensor& tensor, Use use, const Stream& stream, bool needs_copy,
               Prefetcher* prefetcher = nullptr);
  ~StagedTensor() noexcept(false);
  StagedTensor(const StagedTensor&) = delete;
  StagedTensor& operator=(const StagedTensor&) = delete;
  operator const Tensor&() const { return here_; }

 private:
  Tensor tensor_, here_;
  const Stream& stream_;
  Prefetcher* prefetcher_ = nullptr;  // prefetcher that stores `here_`; null if there is none
  bool writes_back_ = false;
  int exceptions_;
};

}  // namespace hybrid_trainer
