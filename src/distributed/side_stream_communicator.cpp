#include "hybrid_trainer/distributed/side_stream_communicator.h"

#include <algorithm>
#include <utility>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

SideStreamCommunicator::~SideStreamCommunicator() {
  if (!side_ || std::uncaught_exceptions() > exceptions_) return;
  try {
    side_->synchronize();
  } catch (const DeviceError&) {  // which whoever works with the device meets too
  }
}

CollectiveTicket SideStreamCommunicator::begin(CollectiveJob job, const Stream& stream) {
  if (!side_) side_.emplace(stream.pool());
  begin_.record(stream);
  side_->order_after(begin_);
  job(ranks(), *side_);
  Event end;
  end.record(*side_);
  begun_.push_back({++last_, stream.native(), std::move(job), std::move(end)});
  return last_;
}

/// They end in their order, so that one's end is that of those before it. The last one stays without
/// its job, for calls on other streams.
void SideStreamCommunicator::wait_for(CollectiveTicket job, const Stream& stream) {
  const auto later = std::find_if(begun_.begin(), begun_.end(),
                                  [&](const Begun& one) { return one.ticket > job; });
  if (later == begun_.begin()) return;
  stream.order_after(std::prev(later)->end);
  std::for_each(begun_.begin(), later, [&](Begun& one) {
    if (one.caller == stream.native()) one.job = {};
  });
  while (begun_.size() > 1 && !begun_.front().job) begun_.pop_front();
}

void SideStreamCommunicator::make(const Stream* stream, const std::function<void()>& call) {
  if (stream != nullptr && stream->device().type == DeviceType::kCuda) wait_for(last_, *stream);
  call();
}

}  // namespace hybrid_trainer
