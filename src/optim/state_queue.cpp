#include "src/optim/state_queue.h"

namespace hybrid_trainer {

Tensor StateQueue::acquire(const Tensor& state, const Stream& stream) {
  if (holders_ == 0) begin_weight(state, stream);
  OfWeight& weight = weights_[begun_ - 1];
  if (taken_ == weight.pages.size()) {
    const Tensor here = allocate(state, stream);
    copy_or_wait(here, state, stream);
    weight.pages.push_back({state, here});
  }
  const Page& page = weight.pages[taken_];
  require(page.home.raw() == state.raw(), "the state of a weight comes in one order");
  worker_.wait_until_done(page.jobs);
  ++taken_;
  ++holders_;
  return page.here;
}

void StateQueue::release() {
  if (--holders_ > 0) return;
  for (std::size_t i = 0; i < taken_; ++i) {
    Page& page = weights_[begun_ - 1].pages[i];
    submit(page.home, page.here, page);
  }
}

/// Where another one comes than in the last update, the rest is learnt anew.
void StateQueue::begin_weight(const Tensor& state, const Stream& stream) {
  if (begun_ > 1) let_go(begun_ - 1);
  const bool is_known = begun_ < weights_.size() && !weights_[begun_].pages.empty() &&
                        weights_[begun_].pages.front().home.raw() == state.raw();
  if (!is_known) {
    worker_.wait_until_idle();
    weights_.resize(begun_);
    weights_.emplace_back();
  }
  ++begun_;
  taken_ = 0;
  for (Page& page : weights_[begun_ - 1].pages) {
    if (page.here) continue;
    page.here = allocate(page.home, stream);
    submit(page.here, page.home, page);
  }
  if (begun_ < weights_.size()) bring_ahead(weights_[begun_], stream);
}

/// Not where memory is too small for it.
void StateQueue::bring_ahead(OfWeight& weight, const Stream& stream) {
  try {
    for (Page& page : weight.pages)
      page.here = Tensor::empty_like(page.home, page.home.kind(), stream);
  } catch (const OutOfMemory&) {
    for (Page& page : weight.pages) page.here = {};
    return;
  }
  for (Page& page : weight.pages) submit(page.here, page.home, page);
}

/// The memory of those before `weights` becomes free once they are written.
void StateQueue::let_go(std::size_t weights) {
  for (; gone_ < weights; ++gone_) {
    for (Page& page : weights_[gone_].pages) {
      worker_.wait_until_done(page.jobs);
      page.here = {};
    }
  }
}

void StateQueue::settle() {
  worker_.wait_until_idle();
  for (OfWeight& weight : weights_)
    for (Page& page : weight.pages) page.here = {};
  begun_ = gone_ = 0;
}

Tensor StateQueue::allocate(const Tensor& state, const Stream& stream) {
  try {
    return Tensor::empty_like(state, state.kind(), stream);
  } catch (const OutOfMemory&) {
    if (gone_ + 1 == begun_) throw;
    let_go(begun_ - 1);
    return Tensor::empty_like(state, state.kind(), stream);
  }
}

/// The page stays where it is until the job is done, which owns nothing, so that memory becomes free
/// in the caller's thread alone.
void StateQueue::submit(const Tensor& to, const Tensor& from, Page& page) {
  if (to.device().simulated || from.device().simulated) return;
  worker_.submit([&to, &from] { copy_in_this_thread(to, from); });
  page.jobs = worker_.submitted();
}

}  // namespace hybrid_trainer
