#include "hybrid_trainer/generation/batch_decoder.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "src/generation/host_tensors.h"
#include "src/generation/kept_window.h"

namespace hybrid_trainer {

BatchDecoder::BatchDecoder(LanguageModel& model, TextRoom room, DType dtype, const Stream& stream)
    : model_(model),
      dtype_(dtype),
      stream_(stream),
      state_(model.make_decode_state(
          {.texts = room.texts, .tokens = std::min(room.tokens, model.config().context)}, dtype,
          stream)),
      rows_(static_cast<std::size_t>(room.texts)) {}

std::span<const float> BatchDecoder::logits(std::int64_t row) const {
  const Tensor& all = rows_[static_cast<std::size_t>(row)].logits;
  return {all.data<float>(), static_cast<std::size_t>(vocabulary())};
}

void BatchDecoder::begin(std::int64_t row, std::span<const std::int32_t> text) {
  require(row >= 0 && row < rows(), "BatchDecoder: a row that there is not");
  require(!text.empty(), "BatchDecoder: no tokens");
  const std::int64_t kept = kept_window(std::ssize(text), model_.config().context);
  const auto window = text.last(static_cast<std::size_t>(kept));
  at(row).window.assign(window.begin(), window.end());
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
    if (std::ssize(at(row).window) > model_.config().context) {
      begin(row, std::vector(at(row).window));
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
      stream_);
  for (std::int64_t i = 0; i < count; ++i)
    at(rows[static_cast<std::size_t>(i)]).logits = logits.rows(i, i + 1);
}

std::unique_ptr<BatchDecoder> make_fitting_batch_decoder(LanguageModel& model, TextRoom room,
                                                         DType dtype, const Stream& stream) {
  for (;; room.texts /= 2) {
    try {
      return std::make_unique<BatchDecoder>(model, room, dtype, stream);
    } catch (const OutOfMemory&) {
      if (room.texts == 1) throw;
      stream.synchronize();
      stream.pool()->trim();
    }
  }
}

}  // namespace hybrid_trainer
