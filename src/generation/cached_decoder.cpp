#include "hybrid_trainer/generation/cached_decoder.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "src/generation/host_tensors.h"
#include "src/generation/kept_window.h"

namespace hybrid_trainer {

CachedDecoder::CachedDecoder(LanguageModel& model, DType dtype, const Stream& stream)
    : model_(model),
      dtype_(dtype),
      stream_(stream),
      state_(
          model.make_decode_state({.texts = 1, .tokens = model.config().context}, dtype, stream)) {}

std::int64_t CachedDecoder::room_for_drafts(std::int64_t tokens) const {
  return std::max<std::int64_t>(0, model_.config().context - (tokens - begin_));
}

void CachedDecoder::see(std::span<const std::int32_t> text, std::int64_t drafted) {
  require(std::ssize(text) > drafted, "CachedDecoder: no tokens");
  const auto alike = std::ranges::mismatch(text_, text).in1 - text_.begin();
  const auto kept = std::min<std::int64_t>(alike, std::ssize(text) - drafted - 1);
  text_.assign(text.begin(), text.end());
  if (kept < begin_) begin_ = 0, state_->restart();
  const std::int64_t begin = std::ssize(text_) - kept_window(window(), model_.config().context);
  if (begin > begin_) begin_ = begin, state_->restart();
  state_->rewind(std::min(state_->position(), std::max<std::int64_t>(0, kept - begin_)));
  const auto first = text_.begin() + begin_ + state_->position();
  const Tensor tokens =
      device_tokens(std::span(first, text_.end()), {1, text_.end() - first}, stream_);
  const std::int64_t text_of_state = 0;
  logits_ = host_f32(model_.next_logits(tokens, {&text_of_state, 1}, *state_, drafted + 1,
                                        {.training = false, .dtype = dtype_}, stream_),
                     stream_);
}

std::span<const float> CachedDecoder::logits(std::int64_t i) const {
  return {logits_.rows(i, i + 1).data<float>(), static_cast<std::size_t>(vocabulary())};
}

}  // namespace hybrid_trainer
