#include "hybrid_trainer/generation/batch_decoder.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/machine_memory.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/generation/context_window.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "src/generation/host_tensors.h"

namespace hybrid_trainer {
namespace {

/// Texts for which the system has memory, a quarter of which is left to all else: a processor's
/// pool is promised more than there is. `make_one` makes a decoder of one text.
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

BatchDecoder::BatchDecoder(LanguageModel& model, TextRoom room, DType dtype, const Stream& stream)
    : model_(model),
      dtype_(dtype),
      stream_(stream),
      host_(make_host_pool(stream.device())),
      state_(model.make_decode_state(
          {.texts = room.texts, .tokens = std::min(room.tokens, model.config().context)}, dtype,
          stream)),
      rows_(static_cast<std::size_t>(room.texts)) {}

std::span<const float> BatchDecoder::logits(std::int64_t row) const {
  const Tensor& all = rows_[static_cast<std::size_t>(row)].logits;
  return {all.data<float>(), static_cast<std::size_t>(vocabulary())};
}

void BatchDecoder::begin(std::int64_t row, std::span<const std::int32_t> text,
                         std::int64_t pinned) {
  require(row >= 0 && row < rows(), "BatchDecoder: a row that there is not");
  require(!text.empty(), "BatchDecoder: no tokens");
  at(row).window = ContextWindow(context(), pinned).of(text);
  at(row).pinned = pinned;
  state_->restart(row);
  see({&row, 1}, at(row).window);
}

void BatchDecoder::check(std::span<const Next> tokens) const {
  std::vector<bool> has(rows_.size());
  for (const auto& [row, token] : tokens) {
    require(row >= 0 && row < rows(), "BatchDecoder: a row that there is not");
    const auto i = static_cast<std::size_t>(row);
    require(!rows_[i].window.empty(), "BatchDecoder: a token for a row without a text");
    require(!has[i], "BatchDecoder: two tokens for a row");
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
  // Beyond kFewRows a processor's products have other bits.
  const bool in_parts = stream_.device().type == DeviceType::kCpu;
  const auto most = in_parts ? static_cast<std::size_t>(kernels::kFewRows) : following.size();
  for (std::span<const Next> rest = following; !rest.empty();) {
    const auto part = rest.first(std::min(most, rest.size()));
    add_together(part);
    rest = rest.subspan(part.size());
  }
}

void BatchDecoder::branch(std::span<const std::int64_t> parents) {
  require(std::ssize(parents) == rows(), "BatchDecoder: want a parent for each row");
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

/// All of one text, or a token of each of some.
void BatchDecoder::see(std::span<const std::int64_t> rows, std::span<const std::int32_t> tokens) {
  const std::int64_t count = std::ssize(rows);
  const Tensor ids = device_tokens(tokens, {count, std::ssize(tokens) / count}, stream_);
  const Tensor logits = host_f32(
      model_.next_logits(ids, rows, *state_, 1, {.training = false, .dtype = dtype_}, stream_),
      host_, stream_);
  for (std::int64_t i = 0; i < count; ++i)
    at(rows[static_cast<std::size_t>(i)]).logits = logits.rows(i, i + 1);
}

std::unique_ptr<BatchDecoder> make_fitting_batch_decoder(LanguageModel& model, TextRoom room,
                                                         DType dtype, const Stream& stream) {
  const auto make = [&](std::int64_t texts) {
    const TextRoom smaller{.texts = texts, .tokens = room.tokens};
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
