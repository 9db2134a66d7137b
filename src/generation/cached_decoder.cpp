#include "hybrid_trainer/generation/cached_decoder.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/generation/context_window.h"
#include "src/generation/host_tensors.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kLongPart = 16;  // tokens that are worth a copy of a state

}  // namespace

CachedDecoder::CachedDecoder(LanguageModel& model, DType dtype, const Stream& stream)
    : model_(model), dtype_(dtype), stream_(stream), host_(make_host_pool(stream.device())) {}

void CachedDecoder::reserve(std::int64_t tokens) {
  const std::int64_t wanted = std::min(tokens, context());
  if (!state_) state_ = model_.make_decode_state({.texts = 1, .tokens = wanted}, dtype_, stream_);
  if (wanted <= state_->room().tokens) return;
  state_->grow(std::min(std::max(wanted, 2 * state_->room().tokens), context()), stream_);
}

std::int64_t CachedDecoder::room_for_drafts(std::int64_t tokens, std::int64_t pinned) const {
  if (state_ && !state_->can_keep()) return 0;  // behind drafts that are not taken
  return context() - (tokens - ContextWindow(context(), pinned).dropped(tokens));
}

void CachedDecoder::see(std::span<const std::int32_t> text, const Parts& parts) {
  require(std::ssize(text) > parts.drafted, "CachedDecoder: no tokens");
  const ContextWindow visible(context(), parts.pinned);
  std::vector<std::int32_t> window = visible.of(text);
  reserve(std::ssize(window));
  if (visible.dropped(std::ssize(text)) != dropped_) seen_.clear();  // what is left is seen anew
  dropped_ = visible.dropped(std::ssize(text));
  const auto alike = std::ranges::mismatch(seen_, window).in1 - seen_.begin();
  const auto known = std::min<std::int64_t>(alike, std::ssize(window) - parts.drafted - 1);
  seen_ = std::move(window);
  if (known < state_->position()) state_->rewind(state_->last_return(known), stream_);
  if (parts.drafted > 0) keep();
  const auto first = seen_.begin() + state_->position();
  const Tensor tokens =
      device_tokens(std::span(first, seen_.end()), {1, seen_.end() - first}, stream_);
  const std::int64_t text_of_state = 0;
  logits_ = host_f32(model_.next_logits(tokens, {&text_of_state, 1}, *state_, parts.drafted + 1,
                                        {.training = false, .dtype = dtype_}, stream_),
                     host_, stream_);
  if (parts.drafted == 0 && tokens.size(1) > kLongPart) keep();
}

/// Of a state that cannot go back to any token: behind drafts that are not taken, and where the next
/// text has less in common with this one.
void CachedDecoder::keep() {
  const bool is_of_use = state_->can_keep() && !state_->can_rewind();
  if (is_of_use && state_->position() > 0) state_->keep(stream_);
}

std::span<const float> CachedDecoder::logits(std::int64_t i) const {
  return {logits_.rows(i, i + 1).data<float>(), static_cast<std::size_t>(vocabulary())};
}

}  // namespace hybrid_trainer
