#include "hybrid_trainer/core/stream.h"

#include "src/core/cuda_runtime.h"

namespace hybrid_trainer {

Stream::Stream(std::shared_ptr<MemoryPool> pool) : pool_(std::move(pool)) {
  if (device().type != DeviceType::kCuda || device().simulated) return;
  native_ = cuda_runtime().create_stream(device().index);
  owns_native_ = true;
  mailbox_ = cuda_runtime().allocate_pinned(kMailboxBytes);
}

Stream::Stream(const Stream& queue, std::shared_ptr<MemoryPool> pool)
    : pool_(std::move(pool)),
      native_(queue.native_),
      mailbox_(queue.mailbox_),
      profile_(queue.profile_) {
  require(queue.device() == device(), "stream: the pool and the queue must have the same device");
}

Stream::~Stream() {
  if (!owns_native_) return;
  cuda_runtime().destroy(native_);
  cuda_runtime().release_pinned(mailbox_);
}

Stream::Stream(Stream&& other) noexcept
    : pool_(std::move(other.pool_)),
      native_(std::exchange(other.native_, nullptr)),
      mailbox_(std::exchange(other.mailbox_, nullptr)),
      owns_native_(std::exchange(other.owns_native_, false)),
      profile_(other.profile_) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(native_, other.native_);
  std::swap(mailbox_, other.mailbox_);
  std::swap(owns_native_, other.owns_native_);
  std::swap(profile_, other.profile_);
  return *this;
}

void Stream::synchronize() const {
  if (native_ != nullptr) cuda_runtime().synchronize(native_);
}

void Stream::order_after(const Event& event) const {
  if (native_ != nullptr && event.native() != nullptr)
    cuda_runtime().order_after(native_, event.native());
}

Event::~Event() {
  if (native_ != nullptr) cuda_runtime().destroy(native_);
}

Event::Event(Event&& other) noexcept : native_(std::exchange(other.native_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(native_, other.native_);
  return *this;
}

void Event::record(const Stream& stream) {
  if (stream.native() == nullptr) return;
  if (native_ == nullptr) native_ = cuda_runtime().create_event();
  cuda_runtime().record(native_, stream.native());
}

bool Event::reached() const { return native_ == nullptr || cuda_runtime().reached(native_); }

void Event::synchronize() const {
  if (native_ != nullptr) cuda_runtime().synchronize(native_);
}

double Event::seconds_between(const Event& begin, const Event& end) {
  if (begin.native_ == nullptr || end.native_ == nullptr) return 0;
  return cuda_runtime().seconds_between(begin.native_, end.native_);
}

}  // namespace hybrid_trainer
