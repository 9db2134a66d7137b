#include "src/generation/text_batch.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {
namespace {

/// Texts of 1 to 40 bytes, with a context of 32.
class TextBatch : public ::testing::Test {
 protected:
  TextBatch() {
    for (std::int64_t i = 0; i < 23; ++i)
      texts_.push_back(bytes_->encode(
          std::string(static_cast<std::size_t>(1 + 17 * i % 40), static_cast<char>('a' + i))));
  }
  std::vector<std::string> alone(const GenerationSettings& settings) {
    std::vector<std::string> written;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      GenerationSettings own = settings;
      own.sampling.seed += i;
      CachedDecoder decoder(*model_, dtype_, stream_);
      std::string& text = written.emplace_back();
      const auto result = continue_text(decoder, nullptr, *bytes_, texts_[i], own,
                                        [&](std::string_view piece) { text += piece; });
      tokens_.push_back(result.tokens);
    }
    return written;
  }
  std::vector<std::string> together(std::int64_t rows, const GenerationSettings& settings) {
    BatchDecoder decoder(*model_, {.texts = rows, .tokens = 40 + settings.tokens}, dtype_, stream_);
    std::vector<std::string> written;
    continue_texts(decoder, *bytes_, texts_, settings,
                   [&](std::size_t i, const GeneratedText& text) {
                     EXPECT_EQ(i, written.size()) << "in order";
                     EXPECT_EQ(text.tokens, tokens_[i]);
                     written.push_back(text.text);
                   });
    return written;
  }

  Stream stream_{MemoryPool::create("test")};
  DType dtype_ = DType::kF32;
  std::unique_ptr<LanguageModel> model_ = make_model(
      {.layers = 2, .heads = 2, .width = 32, .context = 32, .vocabulary = 256}, 3, stream_);
  std::unique_ptr<Tokenizer> bytes_ = make_byte_tokenizer();
  std::vector<std::vector<std::int32_t>> texts_;
  std::vector<std::int64_t> tokens_;
};

TEST_F(TextBatch, EachTextMatchesSeparateGeneration) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    dtype_ = dtype;
    model_->visit_parameters([&](Parameter& p) { p.compute_in(dtype, stream_); });
    for (const double temperature : {0.0, 1.0}) {
      GenerationSettings settings{
          .tokens = 30,
          .sampling = {.temperature = temperature, .repetition_penalty = 1.2, .seed = 5}};
      if (temperature > 0) settings.stop = {"e", "\x01"}, settings.end_tokens = {'q', 'r', 's'};
      tokens_.clear();
      const auto wanted = alone(settings);
      for (const std::int64_t rows : {1, 2, 3, 8, 40}) {
        SCOPED_TRACE(concat(rows, " rows, ", name_of(dtype), ", temperature ", temperature));
        EXPECT_EQ(together(rows, settings), wanted);
      }
      if (temperature > 0) {
        EXPECT_NE(std::ranges::min(tokens_), std::ranges::max(tokens_));
      }
    }
  }
}

/// Returns two adjacent one-byte tokens that occur in one of the texts.
std::string neighbours_in(const std::vector<std::string>& texts) {
  const auto plain = [](char c) { return c > 0; };
  for (const std::string& text : texts) {
    for (std::size_t i = 3; i + 3 < text.size(); ++i)
      if (plain(text[i]) && plain(text[i + 1])) return text.substr(i, 2);
  }
  return "";
}

TEST_F(TextBatch, StopsAtStringAcrossTwoTokens) {
  GenerationSettings settings{.tokens = 30, .sampling = {.seed = 5}};
  const auto whole = alone(settings);
  settings.stop = {neighbours_in(whole)};
  ASSERT_EQ(settings.stop.front().size(), 2u);
  tokens_.clear();
  const auto wanted = alone(settings);
  EXPECT_NE(wanted, whole);
  for (const std::int64_t rows : {2, 8}) EXPECT_EQ(together(rows, settings), wanted) << rows;
}

/// 12 texts of one token, then 6 of 30, which need more memory to begin than 8 rows leave free.
TEST_F(TextBatch, OutOfMemoryHalvesRows) {
  texts_.assign(18, std::vector<std::int32_t>(30, 'b'));
  for (std::size_t i = 0; i < 12; ++i) texts_[i].assign(1, static_cast<std::int32_t>('c' + i));
  const GenerationSettings settings{.tokens = 2, .sampling = {.seed = 5}};
  const auto wanted = alone(settings);
  std::vector<std::pair<std::int64_t, std::size_t>> told;  // rows, texts finished before
  const auto written_in = [&](const Stream& stream) {
    std::vector<std::string> written;
    continue_texts({.model = *model_,
                    .most = 8,
                    .dtype = dtype_,
                    .stream = stream,
                    .fewer = [&](std::int64_t rows) { told.emplace_back(rows, written.size()); }},
                   *bytes_, texts_, settings, [&](std::size_t i, const GeneratedText& text) {
                     EXPECT_EQ(i, written.size()) << "each text once, in order";
                     written.push_back(text.text);
                   });
    return written;
  };
  const Stream roomy(MemoryPool::create("roomy"));
  EXPECT_EQ(written_in(roomy), wanted);
  EXPECT_TRUE(told.empty());
  const std::size_t all = roomy.pool()->use().peak_total,
                    caches = std::size_t{8} * 32 * 2 * 2 * 32 * sizeof(float);
  const Stream tight(MemoryPool::create("tight", all - 4096));
  EXPECT_EQ(written_in(tight), wanted);
  EXPECT_EQ(told, (decltype(told){{4, 8}}));
  const Stream tiny(MemoryPool::create("tiny", (all - caches) / 2));
  EXPECT_THROW(written_in(tiny), OutOfMemory);
}

TEST_F(TextBatch, AcceptsZeroTokensOrTexts) {
  tokens_.assign(texts_.size(), 0);
  EXPECT_EQ(together(3, {.tokens = 0}), std::vector<std::string>(texts_.size()));
  texts_.clear();
  EXPECT_TRUE(together(3, {.tokens = 5}).empty());
}

TEST_F(TextBatch, RejectsInvalidSettingsAndUnknownTokens) {
  EXPECT_THROW(together(3, {.tokens = 5, .sampling = {.top_p = 2}}), UsageError);
  texts_.back() = {97, 256};
  BatchDecoder decoder(*model_, {.texts = 1, .tokens = 32}, dtype_, stream_);
  EXPECT_THROW(continue_texts(decoder, *bytes_, texts_, {.tokens = 1},
                              [](std::size_t, const GeneratedText&) { FAIL() << "written"; }),
               DataError);
}

}  // namespace
}  // namespace hybrid_trainer
