#pragma once

#include "hybrid_trainer/core/dtype.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/stream.h"

namespace hybrid_trainer {

/// A view of part of a shared Buffer: dtype, shape, contiguous row-major elements. Copying a Tensor
/// copies the view, never the elements; the bytes go back to their pool with the last view.
class Tensor {
 public:
  Tensor() = default;  // no elements, no memory

  /// Uninitialised elements from the stream's pool. Throws OutOfMemory.
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

  /// The first element. Throws Error where T is not the tensor's dtype.
  template <class T>
  T* data() const {
    if (DTypeOf<T>::value != dtype_) throw_wrong_dtype(DTypeOf<T>::value);
    return static_cast<T*>(raw());
  }
  void* raw() const {
    return buffer_ ? static_cast<char*>(buffer_->data()) + offset_bytes_ : nullptr;
  }

  /// Accounts the whole block under another kind.
  void set_kind(MemoryKind kind) const { buffer_->set_kind(kind); }
  MemoryKind kind() const { return buffer_ ? buffer_->kind() : MemoryKind::kWorkspace; }
  /// That holds the elements; null for a tensor without any.
  std::shared_ptr<MemoryPool> pool() const { return buffer_ ? buffer_->pool() : nullptr; }
  /// The device that holds the elements; the processor for a tensor without any.
  Device device() const { return buffer_ ? buffer_->device() : Device{}; }
  /// True if a CUDA device can copy to and from it directly.
  bool pinned() const { return buffer_ && buffer_->pinned(); }

  /// A view of the elements under another shape. Throws ShapeMismatch if the counts differ.
  Tensor view(const Shape& shape) const;
  /// A view of the elements as a matrix: the last dimension and, before it, all others joined. The
  /// last must not be 0. An undefined tensor stays undefined.
  Tensor as_rows() const;
  /// Rows [begin, end) of dimension 0, sharing memory.
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

/// Tells whether a tensor has the elements of another one that may be gone meanwhile.
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

/// Copies elements between tensors of one shape and dtype, on the same device or between a CUDA
/// device and pinned host memory, in stream order. If the copy is enqueued, both sides must stay
/// unchanged until it is done. Throws Error if it could only be done by blocking.
void copy(const Tensor& destination, const Tensor& source, const Stream& stream);
/// Copies between any two places, and blocks until it is done.
void wait_for_copy(const Tensor& destination, const Tensor& source, const Stream& stream);
/// Enqueues the copy if it can, else copies and waits.
void copy_or_wait(const Tensor& destination, const Tensor& source, const Stream& stream);
/// Between host memories, without other threads' help, beside which it runs. Throws IoError.
void copy_in_this_thread(const Tensor& destination, const Tensor& source);
void fill_zero(const Tensor& tensor, const Stream& stream);

/// The tensor itself where the host can read it, else a copy in host memory. Blocks until all work
/// of the stream so far is done.
Tensor wait_for_host(const Tensor& tensor, const Stream& stream);
/// The tensor itself if it is on the stream's device, else a copy there, of the same kind.
Tensor wait_for_device(const Tensor& tensor, const Stream& stream);

class Prefetcher;

/// Use of a tensor by a computation.
enum class Use { kRead, kWrite, kChange };

/// A tensor in the memory of the stream's pool for the time of one computation: itself, or a copy
/// of one that lies elsewhere, of the same kind, whose changes are copied back at the end. Copies
/// are in stream order; from and to memory that is not pinned they block on CUDA. An undefined tensor
/// stays undefined. Throws IoError, also at the end.
class StagedTensor {
 public:
  /// Stages what the stream's device does not compute on: host memory beside a CUDA device.
  StagedTensor(const Tensor& tensor, Use use, const Stream& stream)
      : StagedTensor(tensor, use, stream, tensor.device().type != stream.device().type) {}
  /// Stages what lies `elsewhere`; through the prefetcher, if there is one, which then keeps what
  /// goes wrong at the end.
  StagedTensor(const Tensor& tensor, Use use, const Stream& stream, bool elsewhere,
               Prefetcher* prefetcher = nullptr);
  ~StagedTensor() noexcept(false);
  StagedTensor(const StagedTensor&) = delete;
  StagedTensor& operator=(const StagedTensor&) = delete;
  operator const Tensor&() const { return here_; }

 private:
  Tensor tensor_, here_;
  const Stream& stream_;
  Prefetcher* prefetcher_ = nullptr;  // that holds `here_`
  bool goes_back_ = false;
  int exceptions_;
};

}  // namespace hybrid_trainer
