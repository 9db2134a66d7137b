#include "hybrid_trainer/core/tensor.h"

#include <cstring>

#include "src/core/cuda_runtime.h"
#include "src/core/prefetcher.h"

namespace hybrid_trainer {

Tensor Tensor::empty(const Shape& shape, DType dtype, MemoryKind kind, const Stream& stream) {
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  tensor.buffer_ = std::make_shared<Buffer>(stream.pool()->allocate(bytes, kind, {dtype, shape}));
  return tensor;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, MemoryKind kind, const Stream& stream) {
  Tensor tensor = empty(shape, dtype, kind, stream);
  fill_zero(tensor, stream);
  return tensor;
}

Tensor Tensor::view(const Shape& shape) const {
  if (shape.elements() != elements())
    throw ShapeMismatch(
        concat("a tensor of shape ", shape_.text(), " cannot be viewed as ", shape.text()));
  Tensor other = *this;
  other.shape_ = shape;
  return other;
}

Tensor Tensor::as_rows() const {
  if (!*this) return {};
  const std::int64_t last = size(shape_.rank() - 1);
  return view({elements() / last, last});
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  if (shape_.rank() == 0 || begin < 0 || begin > end || end > shape_[0])
    throw ShapeMismatch(concat("rows ", begin, " to ", end,
                               " are out of range for a tensor of shape ", shape_.text()));
  Tensor other = *this;
  other.shape_ = Shape{end - begin};
  std::int64_t row_elements = 1;
  for (int i = 1; i < shape_.rank(); ++i) {
    other.shape_.append(shape_[i]);
    row_elements *= shape_[i];
  }
  other.offset_bytes_ += static_cast<std::size_t>(begin * row_elements) * size_of(dtype_);
  return other;
}

void Tensor::throw_wrong_dtype(DType asked) const {
  throw Error(ExitCode::kInternal, concat("a tensor of dtype ", name_of(dtype_), " and shape ",
                                          shape_.text(), " was read as ", name_of(asked)));
}

namespace {

/// Calls fn(offset, bytes) for contiguous parts of `bytes` on the thread team.
template <class Fn>
void in_shares(std::size_t bytes, const Fn& fn) {
  constexpr std::size_t kShare = 1 << 20;
  const auto count = static_cast<std::int64_t>((bytes + kShare - 1) / kShare);
  run_tasks(count, [&](std::int64_t, std::int64_t i) {
    const std::size_t begin = static_cast<std::size_t>(i) * kShare;
    fn(begin, std::min(kShare, bytes - begin));
  });
}

/// Copies if one of the tensors is in a file (MemorySource::copy_out, copy_in). Returns whether it
/// did.
bool copy_to_or_from_file(const Tensor& destination, const Tensor& source) {
  void* const to = destination.raw();
  return source.pool()->copy_out(to, source.raw(), source.bytes()) ||
         destination.pool()->copy_in(to, source.raw(), source.bytes());
}

void copy_on_host(const Tensor& destination, const Tensor& source) {
  if (source.elements() == 0 || copy_to_or_from_file(destination, source)) return;
  char* to = static_cast<char*>(destination.raw());
  const char* from = static_cast<const char*>(source.raw());
  in_shares(source.bytes(),
            [&](std::size_t at, std::size_t bytes) { std::memcpy(to + at, from + at, bytes); });
}

void check_alike(const Tensor& destination, const Tensor& source) {
  if (destination.shape() == source.shape() && destination.dtype() == source.dtype()) return;
  throw ShapeMismatch(concat("copy: destination is ", destination.shape().text(), " ",
                             name_of(destination.dtype()), ", but source is ",
                             source.shape().text(), " ", name_of(source.dtype())));
}

bool on_host(const Tensor& tensor) { return tensor.device().type == DeviceType::kCpu; }

bool simulated(const Stream& stream) { return stream.device().simulated; }

bool needs_staging(const Tensor& tensor) { return on_host(tensor) && !tensor.pinned(); }

/// Page-locked staging memory of blocking copies.
class Staging {
 public:
  Staging(std::size_t bytes, const Stream& stream) : bytes_(std::min(bytes, kBytes)) {
    owns_ = bytes > Stream::kMailboxBytes || stream.mailbox() == nullptr;
    data_ = owns_ ? cuda_runtime().allocate_pinned(bytes_) : stream.mailbox();
    if (data_ == nullptr)
      throw OutOfMemory("cannot allocate pinned host memory for a copy", bytes_, 0);
  }
  ~Staging() {
    if (owns_) cuda_runtime().release_pinned(data_);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void wait_for_copy(const Tensor& destination, const Tensor& source, const Stream& stream) const {
    char* to = static_cast<char*>(destination.raw());
    const char* from = static_cast<const char*>(source.raw());
    for (std::size_t at = 0; at < source.bytes(); at += bytes_) {
      const std::size_t bytes = std::min(bytes_, source.bytes() - at);
      if (on_host(source)) std::memcpy(data_, from + at, bytes);
      cuda_runtime().copy(on_host(destination) ? data_ : to + at,
                          on_host(source) ? data_ : from + at, bytes, stream.native());
      stream.synchronize();
      if (on_host(destination)) std::memcpy(to + at, data_, bytes);
    }
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{8} << 20;
  std::size_t bytes_;
  bool owns_ = false;
  void* data_ = nullptr;
};

}  // namespace

void copy_in_this_thread(const Tensor& destination, const Tensor& source) {
  if (!copy_to_or_from_file(destination, source))
    std::memcpy(destination.raw(), source.raw(), source.bytes());
}

void copy(const Tensor& destination, const Tensor& source, const Stream& stream) {
  check_alike(destination, source);
  if (simulated(stream)) return;
  if (stream.native() == nullptr) return copy_on_host(destination, source);
  require(!needs_staging(destination) && !needs_staging(source),
          "copy: the host memory is not pinned; use wait_for_copy");
  cuda_runtime().copy(destination.raw(), source.raw(), source.bytes(), stream.native());
}

void wait_for_copy(const Tensor& destination, const Tensor& source, const Stream& stream) {
  check_alike(destination, source);
  if (simulated(stream)) return;
  if (on_host(destination) && on_host(source)) {
    stream.synchronize();
    return copy_on_host(destination, source);
  }
  if (needs_staging(destination) || needs_staging(source))
    return Staging(source.bytes(), stream).wait_for_copy(destination, source, stream);
  copy(destination, source, stream);
  stream.synchronize();
}

void copy_or_wait(const Tensor& destination, const Tensor& source, const Stream& stream) {
  const bool enqueued =
      stream.native() == nullptr || !(needs_staging(destination) || needs_staging(source));
  (enqueued ? copy : wait_for_copy)(destination, source, stream);
}

void fill_zero(const Tensor& tensor, const Stream& stream) {
  if (simulated(stream)) return;
  if (!on_host(tensor))
    return cuda_runtime().fill_zero(tensor.raw(), tensor.bytes(), stream.native());
  char* to = static_cast<char*>(tensor.raw());
  in_shares(tensor.bytes(),
            [&](std::size_t at, std::size_t bytes) { std::memset(to + at, 0, bytes); });
}

Tensor wait_for_host(const Tensor& tensor, const Stream& stream) {
  stream.synchronize();
  if (on_host(tensor) && !simulated(stream)) return tensor;
  const Stream host(MemoryPool::create("host"));
  const Tensor copied = Tensor::empty_like(tensor, MemoryKind::kWorkspace, host);
  if (simulated(stream)) fill_zero(copied, host);
  wait_for_copy(copied, tensor, stream);
  return copied;
}

Tensor wait_for_device(const Tensor& tensor, const Stream& stream) {
  if (tensor.device() == stream.device()) return tensor;
  const Tensor copied = Tensor::empty_like(tensor, tensor.kind(), stream);
  wait_for_copy(copied, tensor, stream);
  return copied;
}

StagedTensor::StagedTensor(const Tensor& tensor, Use use, const Stream& stream, bool needs_copy,
                           Prefetcher* prefetcher)
    : tensor_(tensor), here_(tensor), stream_(stream), exceptions_(std::uncaught_exceptions()) {
  if (!tensor || !needs_copy) return;
  writes_back_ = use != Use::kRead;
  if (prefetcher != nullptr) {
    here_ = prefetcher->acquire(tensor, stream);
    prefetcher_ = prefetcher;
    return;
  }
  here_ = Tensor::empty_like(tensor, tensor.kind(), stream);
  if (use != Use::kWrite) copy_or_wait(here_, tensor, stream);
}

/// Swallows errors during stack unwinding: the exception in flight is more informative.
StagedTensor::~StagedTensor() noexcept(false) {
  if (prefetcher_ != nullptr) prefetcher_->release(tensor_, here_, writes_back_, stream_);
  if (prefetcher_ != nullptr || !writes_back_) return;
  try {
    copy_or_wait(tensor_, here_, stream_);
  } catch (const std::exception&) {
    if (std::uncaught_exceptions() == exceptions_) throw;
  }
}

}  // namespace hybrid_trainer
