#include "src/optim/state_pages.h"

#include <algorithm>

namespace hybrid_trainer {

void StatePages::begin_update(const Stream& stream) {
  const auto live = [&] { return stream.pool()->use().live_total; };
  if (updates_ == 2 && live() + (peak_bytes_ - live_before_) > budget_bytes_) leave(stream);
  if (updates_ == 2) return;
  if (++updates_ == 1) {
    live_before_ = live();
    return;
  }
  const std::size_t taken = std::max(peak_bytes_, stream.pool()->use().peak_total);
  room_bytes_ = budget_bytes_ - std::min(budget_bytes_, taken);
}

void StatePages::end_update(const MemoryPool& device) {
  if (updates_ == 1) peak_bytes_ = std::max(live_before_, device.use().peak_total);
}

Tensor StatePages::page_of(const Tensor& state, Use use, const Stream& stream) {
  if (!state) return {};
  auto page = std::find_if(pages_.begin(), pages_.end(),
                           [&](const Page& known) { return known.home.raw() == state.raw(); });
  if (page == pages_.end()) {
    constexpr std::size_t kMostRounding = 4096;  // of a block
    const std::size_t bytes = state.bytes() + kMostRounding;
    if (bytes > room_bytes_) return {};
    room_bytes_ -= bytes;
    const Tensor here = Tensor::empty_like(state, state.kind(), stream);
    if (use != Use::kWrite) copy_or_wait(here, state, stream);
    page = pages_.insert(pages_.end(), {state, here, false});
  }
  page->changed = page->changed || use != Use::kRead;
  return page->here;
}

bool StatePages::leave(const Stream& stream) {
  for (const Page& page : pages_)
    if (page.changed) copy_or_wait(page.home, page.here, stream);
  const bool any = !pages_.empty();
  pages_.clear();
  updates_ = 0;
  room_bytes_ = 0;
  return any;
}

}  // namespace hybrid_trainer
