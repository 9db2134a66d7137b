#include "hybrid_trainer/generation/cached_decoder.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/core/machine.h"
#include "tests/support/gradient_check.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kWords = 61, kPlaces = 24;
using TokenText = std::vector<std::int32_t>;

/// Tokens [begin, end) of the random text `seed`.
TokenText some_tokens(std::uint64_t seed, std::int64_t begin, std::int64_t end) {
  TokenText text;
  for (std::int64_t i = begin; i < end; ++i)
    text.push_back(static_cast<std::int32_t>(
        random_below({seed}, static_cast<std::uint64_t>(i), std::uint64_t{kWords})));
  return text;
}

struct Variant {
  const char* name;
  const char* family;
  DType dtype = DType::kF32;
  const char* scaling = "default";
  bool odd = false;  // sizes that are not multiples of a vector
};

class BatchDecoderParity : public ::testing::TestWithParam<Variant> {
 protected:
  BatchDecoderParity() {
    ModelConfig config{.layers = 2, .heads = 4, .width = 32, .context = kPlaces};
    config.family = GetParam().family;
    config.vocabulary = kWords;
    if (config.family != "gpt2" && config.family != "llama") config.window = 5;
    if (config.family == "gemma2") config.attention_cap = config.logit_cap = 2;
    if (GetParam().odd) config.width = 28;
    if (GetParam().odd && config.family == "gpt2") config.width = 30, config.heads = 3;
    if (GetParam().odd && config.family != "gpt2")
      config.intermediate_size = 50, config.head_size = 6;
    config.rope_scaling.type = GetParam().scaling;
    if (config.rope_scaling.type == "dynamic")
      config.rope_scaling.factor = 3, config.rope_scaling.original_context = 8;
    model_ = make_model(config, 3, stream_);
    testing::randomize([this](const ParameterVisitor& visit) { model_->visit_parameters(visit); },
                       stream_);
    model_->visit_parameters([&](Parameter& p) { p.compute_in(GetParam().dtype, stream_); });
  }
  Stream stream_{MemoryPool::create("test")};
  std::unique_ptr<LanguageModel> model_;
};

/// 20 texts in 20 rows, more than one product takes. They have 1 to 26 tokens, which exceeds the
/// context. Some rows skip a step or begin another text.
TEST_P(BatchDecoderParity, EachTextMatchesSingleDecoding) {
  constexpr std::int64_t kRows = 20;
  BatchDecoder together(*model_, {.texts = kRows, .tokens = 100}, GetParam().dtype, stream_);
  struct One {
    std::uint64_t seed;
    std::unique_ptr<CachedDecoder> alone;
    TokenText text;
  };
  std::vector<One> ones;
  const auto begin = [&](std::int64_t row, std::uint64_t seed) {
    const TokenText text = some_tokens(seed, 0, 1 + 7 * row % 26);
    together.begin(row, text);
    auto alone = std::make_unique<CachedDecoder>(*model_, GetParam().dtype, stream_);
    alone->see(text);
    return One{seed, std::move(alone), text};
  };
  for (std::int64_t row = 0; row < kRows; ++row)
    ones.push_back(begin(row, static_cast<std::uint64_t>(row)));
  for (std::int64_t step = 0; step < 30; ++step) {
    std::vector<BatchDecoder::Next> next;
    for (std::int64_t row = 0; row < kRows; ++row) {
      One& one = ones[static_cast<std::size_t>(row)];
      if ((row + step) % 11 == 10) one = begin(row, 1000 * one.seed + 7);
      const std::int64_t size = std::ssize(one.text);
      if ((row + step) % 5 != 4) {
        one.text.push_back(some_tokens(one.seed, size, size + 1).front());
        one.alone->see(one.text);
        next.push_back({row, one.text.back()});
      }
    }
    together.add(next);
    for (std::int64_t row = 0; row < kRows; ++row) {
      ASSERT_TRUE(std::ranges::equal(together.logits(row),
                                     ones[static_cast<std::size_t>(row)].alone->logits()))
          << "row " << row << " at step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, BatchDecoderParity,
    ::testing::Values(Variant{"gpt2", "gpt2"}, Variant{"gpt2_bf16", "gpt2", DType::kBF16},
                      Variant{"llama", "llama"}, Variant{"llama_bf16", "llama", DType::kBF16},
                      Variant{"llama_dynamic", "llama", DType::kF32, "dynamic"},
                      Variant{"llama_odd", "llama", DType::kF32, "default", true},
                      Variant{"gpt2_odd", "gpt2", DType::kF32, "default", true},
                      Variant{"gemma2_odd", "gemma2", DType::kBF16, "default", true},
                      Variant{"mistral", "mistral"}, Variant{"qwen2", "qwen2"},
                      Variant{"qwen3_bf16", "qwen3", DType::kBF16}, Variant{"gemma2", "gemma2"},
                      Variant{"gemma2_bf16", "gemma2", DType::kBF16}, Variant{"gemma3", "gemma3"}),
    [](const auto& info) { return std::string(info.param.name); });

ModelConfig small_gpt2() {
  return {.layers = 2, .heads = 2, .width = 32, .context = kPlaces, .vocabulary = kWords};
}

TEST(BatchDecoder, AllocatesExactlyRequestedMemory) {
  const Stream stream(MemoryPool::create("test")), own(MemoryPool::create("caches"));
  const auto model = make_model(small_gpt2(), 3, stream);
  const auto bytes_of = [&](DecodeCapacity room) {
    const BatchDecoder decoder(*model, room, DType::kF32, own);
    return own.pool()->use().live_total;
  };
  const std::size_t token = 2 * 2 * 32 * sizeof(float);  // layers, keys and values, width
  EXPECT_EQ(bytes_of({.texts = 4, .tokens = 8}), 4 * 8 * token);
  EXPECT_EQ(bytes_of({.texts = 4, .tokens = 1000}), 4 * kPlaces * token) << "the context";
}

TEST(BatchDecoder, FitsRowsToPoolMemory) {
  const Stream stream(MemoryPool::create("test"));
  ModelConfig config = small_gpt2();
  config.width = 64;
  const auto model = make_model(config, 3, stream);
  const DecodeCapacity room{.texts = 8, .tokens = 16};  // 16 KiB per text
  const auto rows_in = [&](std::size_t kibibytes) {
    const Stream small(MemoryPool::create("small", kibibytes << 10));
    return make_fitting_batch_decoder(*model, room, DType::kF32, small)->rows();
  };
  for (const std::int64_t rows : {1, 2, 3, 5, 7, 8})
    EXPECT_EQ(rows_in(static_cast<std::size_t>(16 * rows + 15)), rows);
  EXPECT_EQ(rows_in(1000), 8) << "at most the requested number";
  EXPECT_THROW(rows_in(15), OutOfMemory);
}

TEST(BatchDecoder, FitsRowsToSystemMemory) {
  const Stream stream(MemoryPool::create("test"));
  ModelConfig config{.layers = 4, .heads = 16, .width = 16, .context = 2048};
  config.family = "llama";
  config.vocabulary = kWords;
  config.head_size = 128;
  const auto model = make_model(config, 3, stream);
  const std::size_t text = std::size_t{4} * 2 * 16 * 128 * 2048 * sizeof(float);  // 128 MiB
  const DecodeCapacity room{.texts = 1 << 14, .tokens = 2048};  // 2 TiB, never touched
  const auto decoder = make_fitting_batch_decoder(*model, room, DType::kF32, stream);
  EXPECT_LE(static_cast<std::size_t>(decoder->rows()), 1 + machine_memory().available_bytes / text);
}

TEST(BatchDecoder, RejectsInvalidRowsWithoutSideEffects) {
  const Stream stream(MemoryPool::create("test"));
  const auto model = make_model(small_gpt2(), 3, stream);
  BatchDecoder decoder(*model, {.texts = 2, .tokens = 8}, DType::kF32, stream);
  for (const std::int64_t row : {-1, 2})
    EXPECT_THROW(decoder.begin(row, TokenText{1}), Error) << row;
  EXPECT_THROW(decoder.begin(0, {}), Error);
  decoder.begin(0, TokenText{1});
  const auto refusal = [&](const std::vector<BatchDecoder::Next>& next) -> std::string {
    try {
      decoder.add(next);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({{0, 5}, {1, 5}}), "BatchDecoder: got a token for a row without text");
  EXPECT_EQ(refusal({{0, 5}, {0, 5}}), "BatchDecoder: got two tokens for one row");
  EXPECT_EQ(refusal({{0, 5}, {2, 5}}), "BatchDecoder: no such row");
  EXPECT_EQ(refusal({{0, 5}, {-1, 5}}), "BatchDecoder: no such row");
  CachedDecoder alone(*model, DType::kF32, stream);
  for (const TokenText& text : {TokenText{1}, TokenText{1, 7}}) alone.see(text);
  decoder.add(std::vector<BatchDecoder::Next>{{0, 7}});
  EXPECT_TRUE(std::ranges::equal(decoder.logits(0), alone.logits()))
      << "the rejected tokens must have no effect";
}

}  // namespace
}  // namespace hybrid_trainer
