#include "hybrid_trainer/generation/cached_decoder.h"

#include <algorithm>

#include "src/core/machine.h"

namespace hybrid_trainer {

Tensor device_tokens(std::span<const std::int32_t> tokens, const Shape& shape,
                     const Stream& stream) {
  const Stream host(MemoryPool::create("host"));
  const Tensor values = Tensor::empty(shape, DType::kI32, MemoryKind::kData, host);
  std::ranges::copy(tokens, values.data<std::int32_t>());
  return wait_for_device(values, stream);
}

Tensor host_f32(const Tensor& values, const Stream& host, const Stream& stream) {
  stream.synchronize();
  Tensor there = values;
  if (values.device() != host.device()) {
    there = Tensor::empty_like(values, MemoryKind::kLogits, host);
    wait_for_copy(there, values, stream);
  }
  if (there.dtype() == DType::kF32) return there;
  const Tensor wide = Tensor::empty(there.shape(), DType::kF32, MemoryKind::kLogits, host);
  kernels::cast(wide, there, host);
  return wide;
}

namespace {

/// Returns a text without the `dropped` tokens that follow its first `pinned` ones.
std::vector<std::int32_t> without(std::span<const std::int32_t> text, std::int64_t pinned,
                                  std::int64_t dropped) {
  const auto begin = text.begin();
  std::vector<std::int32_t> rest(begin, begin + pinned);
  rest.insert(rest.end(), begin + pinned + dropped, text.end());
  return rest;
}

constexpr std::int64_t kLongPart = 16;  // shortest part that is worth a copy of the state

/// Returns the number of texts that fit in three quarters of the available memory. Limits texts on
/// the CPU, whose pool can allocate more memory than exists. `make_one` makes a decoder for one
/// text.
template <class MakeOne>
std::int64_t texts_in_system(const MakeOne& make_one, const Stream& stream) {
  const std::size_t available = machine_memory().available_bytes / 4 * 3;
  if (stream.device().type != DeviceType::kCpu || available == 0) return INT64_MAX;
  const std::size_t before = stream.pool()->use().live_total;
  const auto one = make_one();
  const std::size_t bytes = stream.pool()->use().live_total - before;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(available / std::max<std::size_t>(1, bytes)));
}

}  // namespace

ContextWindow::ContextWindow(std::int64_t context, std::int64_t pinned)
    : context_(context), pinned_(std::min(pinned, context / 2)) {}

std::int64_t ContextWindow::dropped(std::int64_t tokens) const {
  if (tokens <= context_) return 0;
  const std::int64_t at_once = context_ + 1 - least();
  return ((tokens - context_ - 1) / at_once + 1) * at_once;
}

std::vector<std::int32_t> ContextWindow::of(std::span<const std::int32_t> text) const {
  const std::int64_t gone = dropped(std::ssize(text));
  return without(text, gone > 0 ? pinned_ : 0, gone);
}

FittedPrompt fit_prompt(std::vector<std::int32_t> prompt, const ContextWindow& window,
                        std::int64_t more, ContextOverflow overflow) {
  const std::int64_t tokens = std::ssize(prompt), context = window.context();
  if (tokens <= context) return {std::move(prompt)};
  if (overflow == ContextOverflow::kError)
    throw DataError(
        concat("the prompt has ", tokens, " tokens and the model's context is ", context,
               "; shorten the prompt, or drop its oldest tokens with --context-overflow truncate"));
  const std::int64_t kept = std::max(window.least(), context - std::min(more, context));
  return {without(prompt, window.pinned(), tokens - kept), tokens - kept};
}

void check_overflow(std::int64_t tokens, const ContextWindow& window, ContextOverflow overflow) {
  if (tokens <= window.context() || overflow == ContextOverflow::kTruncate) return;
  throw DataError(concat(
      "the text has reached the model's context of ", window.context(),
      " tokens; reduce --tokens, or drop the oldest tokens with --context-overflow truncate"));
}

CachedDecoder::CachedDecoder(LanguageModel& model, DType dtype, const Stream& stream)
    : model_(model), dtype_(dtype), stream_(stream), host_(make_host_pool(stream.device())) {}

void CachedDecoder::reserve(std::int64_t tokens) {
  const std::int64_t wanted = std::min(tokens, context());
  if (!state_) state_ = model_.make_decode_state({.texts = 1, .tokens = wanted}, dtype_, stream_);
  if (wanted <= state_->room().tokens) return;
  state_->grow(std::min(std::max(wanted, 2 * state_->room().tokens), context()), stream_);
}

void CachedDecoder::see(std::span<const std::int32_t> text, const Parts& parts) {
  require(std::ssize(text) > parts.drafted, "CachedDecoder: no tokens");
  const ContextWindow visible(context(), parts.pinned);
  std::vector<std::int32_t> window = visible.of(text);
  reserve(std::ssize(window));
  if (visible.dropped(std::ssize(text)) != dropped_) seen_.clear();  // reprocess the rest
  dropped_ = visible.dropped(std::ssize(text));
  const auto alike = std::ranges::mismatch(seen_, window).in1 - seen_.begin();
  const auto known = std::min<std::int64_t>(alike, std::ssize(window) - parts.drafted - 1);
  seen_ = std::move(window);
  if (known < state_->position()) state_->rewind(state_->rewind_position(known), stream_);
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

/// Copies a state that cannot be reset to an earlier token. The copy is for rejected drafts and
/// shorter common prefixes.
void CachedDecoder::keep() {
  const bool is_of_use = state_->can_keep() && !state_->can_rewind();
  if (is_of_use && state_->position() > 0) state_->keep(stream_);
}

std::span<const float> CachedDecoder::logits(std::int64_t i) const {
  return {logits_.rows(i, i + 1).data<float>(), static_cast<std::size_t>(vocabulary())};
}

BatchDecoder::BatchDecoder(LanguageModel& model, DecodeCapacity room, DType dtype,
                           const Stream& stream)
    : model_(model),
      dtype_(dtype),
      stream_(stream),
      host_(make_host_pool(stream.device())),
      state_(model.make_decode_state(
          {.texts = room.texts, .tokens = std::min(room.tokens, model.config().context)}, dtype,
          stream)),
      rows_(static_cast<std::size_t>(room.texts)) {}

void BatchDecoder::begin(std::int64_t row, std::span<const std::int32_t> text,
                         std::int64_t pinned) {
  require(row >= 0 && row < rows(), "BatchDecoder: no such row");
  require(!text.empty(), "BatchDecoder: no tokens");
  at(row).window = ContextWindow(context(), pinned).of(text);
  at(row).pinned = pinned;
  state_->restart(row);
  see({&row, 1}, at(row).window);
}

void BatchDecoder::check(std::span<const Next> tokens) const {
  std::vector<bool> has(rows_.size());
  for (const auto& [row, token] : tokens) {
    require(row >= 0 && row < rows(), "BatchDecoder: no such row");
    const auto i = static_cast<std::size_t>(row);
    require(!rows_[i].window.empty(), "BatchDecoder: got a token for a row without text");
    require(!has[i], "BatchDecoder: got two tokens for one row");
    has[i] = true;
  }
}

void BatchDecoder::add(std::span<const Next> tokens) {
  check(tokens);
  std::vector<Next> following;
  for (const auto& [row, token] : tokens) {
    at(row).window.push_back(token);
    if (std::ssize(at(row).window) > context()) {
      begin(row, std::vector(at(row).window), at(row).pinned);
    } else {
      following.push_back({row, token});
    }
  }
  // On the CPU, more than kFewRows rows at a time would produce different bits.
  const bool in_parts = stream_.device().type == DeviceType::kCpu;
  const auto most = in_parts ? static_cast<std::size_t>(kernels::kFewRows) : following.size();
  for (std::span<const Next> rest = following; !rest.empty();) {
    const auto part = rest.first(std::min(most, rest.size()));
    add_together(part);
    rest = rest.subspan(part.size());
  }
}

void BatchDecoder::branch(std::span<const std::int64_t> parents) {
  require(std::ssize(parents) == rows(), "BatchDecoder: want one parent per row");
  state_->branch(parents, stream_);
  const std::vector<Row> before(rows_);
  for (std::size_t row = 0; row < rows_.size(); ++row)
    rows_[row] = before[static_cast<std::size_t>(parents[row])];
}

void BatchDecoder::add_together(std::span<const Next> tokens) {
  std::vector<std::int64_t> rows;
  std::vector<std::int32_t> ids;
  for (const auto& [row, token] : tokens) rows.push_back(row), ids.push_back(token);
  see(rows, ids);
}

void BatchDecoder::see(std::span<const std::int64_t> rows, std::span<const std::int32_t> tokens) {
  const std::int64_t count = std::ssize(rows);
  const Tensor ids = device_tokens(tokens, {count, std::ssize(tokens) / count}, stream_);
  const Tensor logits = host_f32(
      model_.next_logits(ids, rows, *state_, 1, {.training = false, .dtype = dtype_}, stream_),
      host_, stream_);
  for (std::int64_t i = 0; i < count; ++i)
    at(rows[static_cast<std::size_t>(i)]).logits = logits.rows(i, i + 1);
}

std::unique_ptr<BatchDecoder> make_fitting_batch_decoder(LanguageModel& model, DecodeCapacity room,
                                                         DType dtype, const Stream& stream) {
  const auto make = [&](std::int64_t texts) {
    const DecodeCapacity smaller{.texts = texts, .tokens = room.tokens};
    return std::make_unique<BatchDecoder>(model, smaller, dtype, stream);
  };
  const auto fits = [&](std::int64_t texts) {
    try {
      make(texts);
      return true;
    } catch (const OutOfMemory&) {
      stream.synchronize();
      stream.pool()->trim();
      return false;
    }
  };
  const std::int64_t most = std::min(room.texts, texts_in_system([&] { return make(1); }, stream));
  std::int64_t fitting = 1, beyond = most + 1;
  for (std::int64_t texts = most; beyond - fitting > 1; texts = fitting + (beyond - fitting) / 2)
    (fits(texts) ? fitting : beyond) = texts;
  return make(fitting);
}

}  // namespace hybrid_trainer
