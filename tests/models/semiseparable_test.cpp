// The family whose layers are specified by letters, as a decoder and as an encoder.
#include <gtest/gtest.h>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/models/model_family.h"
#include "tests/support/gradient_check.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kLetters = 50, kLongest = 40;

ModelConfig model_of(const std::string& mixers, bool bidirectional) {
  return {.family = "semiseparable",
          .layers = std::ssize(mixers),
          .heads = 2,
          .width = 16,
          .context = kLongest,
          .vocabulary = kLetters,
          .mixers = mixers,
          .bidirectional = bidirectional,
          .state_space = {.heads = 2, .head_size = 8, .state_size = 4},
          .semiseparable = {.rank = 3, .potentials = 4}};
}

std::unique_ptr<LanguageModel> drawn(const ModelConfig& config, const Stream& stream) {
  auto model = make_model(config, 1, stream);
  randomize([&](const ParameterVisitor& visit) { model->visit_parameters(visit); }, stream);
  return model;
}

std::vector<std::string> problems_in(const ModelConfig& config) {
  std::vector<std::string> problems;
  collect_range_problems(config, "model", problems);
  collect_model_problems(config, problems);
  return problems;
}

struct LettersCase {
  const char* letters;
  bool bidirectional;
  friend std::ostream& operator<<(std::ostream& out, const LettersCase& c) {
    return out << c.letters << (c.bidirectional ? " both ways" : "");
  }
};

class SemiseparableFamily : public ::testing::TestWithParam<LettersCase> {
 protected:
  const Stream stream_ = test_stream();
  std::unique_ptr<LanguageModel> model_ =
      drawn(model_of(GetParam().letters, GetParam().bidirectional), stream_);
};

/// Two sequences, the first of which has two documents.
TEST_P(SemiseparableFamily, GradientsMatchFiniteDifferences) {
  const Tensor positions = Tensor::empty({2, 6}, DType::kI32, MemoryKind::kData, stream_);
  for (std::int32_t i = 0; i < 12; ++i)
    positions.data<std::int32_t>()[i] = i < 4 ? i : i < 6 ? i - 4 : i - 6;
  const Batch batch = token_batch(random_tokens({2, 6}, kLetters, 1, stream_),
                                  random_tokens({2, 6}, kLetters, 2, stream_), positions);
  Differentiable f;
  f.forward = [&](ActivationTape& tape) {
    return 12 * kernels::wait_for_value(model_->forward(batch, 12, tape, stream_), stream_);
  };
  f.backward = [&](ActivationTape& tape) {
    model_->backward(batch, tape, stream_);
    return Tensor{};
  };
  f.visit_parameters = [&](const ParameterVisitor& visit) { model_->visit_parameters(visit); };
  expect_gradients_match(f, stream_, {.step = 4e-3, .relative = 3e-2, .directions = 1});
}

TEST_P(SemiseparableFamily, SeesLaterTokensOnlyAsEncoder) {
  const Tensor tokens = random_tokens({1, 12}, kLetters, 5, stream_);
  const auto first = [&] {
    return clone(model_->logits(tokens, {.training = false}, stream_).rows(10, 11), stream_);
  };
  const Tensor before = first();
  std::int32_t& last = tokens.data<std::int32_t>()[11];
  last = (last + 1) % kLetters;
  EXPECT_EQ(same_bits(before, first()), !GetParam().bidirectional);
}

INSTANTIATE_TEST_SUITE_P(Letters, SemiseparableFamily,
                         ::testing::Values(LettersCase{"a", false}, LettersCase{"c", false},
                                           LettersCase{"m", false}, LettersCase{"d", false},
                                           LettersCase{"t", false}, LettersCase{"p", false},
                                           LettersCase{"a", true}, LettersCase{"h", true},
                                           LettersCase{"t", true}, LettersCase{"p", true},
                                           LettersCase{"b", true}));

class SemiseparableDecoder : public ::testing::Test {
 protected:
  const Stream stream_ = test_stream();
  std::unique_ptr<LanguageModel> model_ = drawn(model_of("acmdtp", false), stream_);
};

/// Token by token, many tokens together, after drafts, and after going back.
TEST_F(SemiseparableDecoder, DecodingMatchesFullPass) {
  const Tensor tokens = random_tokens({1, kLongest}, kLetters, 5, stream_);
  const Tensor wanted = model_->logits(tokens, {.training = false}, stream_);
  CachedDecoder decoder(*model_, DType::kF32, stream_);
  for (const std::int64_t length : {2, 3, 4, 9, 30, 40, 7, 8, 28}) {
    decoder.see({tokens.data<std::int32_t>(), static_cast<std::size_t>(length)});
    for (std::size_t v = 0; v < kLetters; ++v)
      ASSERT_NEAR(decoder.logits()[v], wanted.rows(length - 1, length).data<float>()[v], 2e-4)
          << length;
  }
}

TEST_F(SemiseparableDecoder, RewindsToKeptState) {
  const Tensor tokens = random_tokens({1, 12}, kLetters, 5, stream_);
  const auto state =
      model_->make_decode_state({.texts = 1, .tokens = kLongest}, DType::kF32, stream_);
  const auto next = [&](std::int64_t begin, std::int64_t end) {
    const Tensor part = tokens.view({12, 1}).rows(begin, end).view({1, end - begin});
    const std::int64_t text = 0;
    return clone(model_->next_logits(part, {&text, 1}, *state, 1, {.training = false}, stream_),
                 stream_);
  };
  next(0, 5);
  EXPECT_FALSE(state->can_rewind());
  state->keep(stream_);
  const Tensor wanted = next(5, 8);
  state->rewind(5, stream_);
  next(8, 12);
  state->rewind(5, stream_);
  EXPECT_TRUE(same_bits(next(5, 8), wanted));
}

TEST_F(SemiseparableDecoder, BatchDecodingMatchesFullPass) {
  const Tensor tokens = random_tokens({3, 9}, kLetters, 5, stream_);
  const Tensor wanted = model_->logits(tokens, {.training = false}, stream_);
  BatchDecoder decoder(*model_, {.texts = 3, .tokens = 9}, DType::kF32, stream_);
  const auto row = [&](std::int64_t i) { return tokens.data<std::int32_t>() + 9 * i; };
  for (std::int64_t i = 0; i < 3; ++i) decoder.begin(i, {row(i), static_cast<std::size_t>(2 + i)});
  for (std::int64_t t = 0; t < 5; ++t) {
    std::vector<BatchDecoder::Next> next;
    for (std::int64_t i = 0; i < 3; ++i) next.push_back({i, row(i)[2 + i + t]});
    decoder.add(next);
  }
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::int64_t last = 9 * i + 6 + i;
    for (std::size_t v = 0; v < kLetters; ++v)
      EXPECT_NEAR(decoder.logits(i)[v], wanted.rows(last, last + 1).data<float>()[v], 2e-4);
  }
}

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(SemiseparableDecoder, RejectsHuggingFaceExport) {
  const TemporaryFolder scratch;
  EXPECT_EQ(message_of([&] { export_hugging_face(*model_, nullptr, scratch / "out", stream_); }),
            "transformers has no semiseparable models, so this model cannot be exported as a "
            "folder; `hybrid eval` and `train --resume` take the run's own folder");
}

TEST(SemiseparableEncoder, CannotGenerateText) {
  const Stream stream = test_stream();
  const auto model = drawn(model_of("ahtpb", true), stream);
  EXPECT_EQ(
      message_of([&] { model->make_decode_state({.texts = 1, .tokens = 4}, DType::kF32, stream); }),
      "the model is an encoder (model.bidirectional), so it cannot generate text: each of its "
      "tokens depends on later ones; train a decoder for that");
}

TEST(SemiseparableConfig, RejectsInvalidLayersInOneLine) {
  using Lines = std::vector<std::string>;
  const auto of = [](const std::string& mixers, bool bidirectional) {
    return problems_in(model_of(mixers, bidirectional));
  };
  EXPECT_EQ(of("acmdtp", false), Lines{});
  EXPECT_EQ(of("ahtpb", true), Lines{});
  const char* const see_ahead =
      " sees later tokens, so a decoder cannot use it; set model.bidirectional for an encoder";
  EXPECT_EQ(of("th", false), Lines{concat("model.mixers: got th, but h (hydra)", see_ahead)});
  EXPECT_EQ(of("b", false), Lines{concat("model.mixers: got b, but b (bk_core)", see_ahead)});
  for (const auto& [letter, name] : std::map<std::string, std::string>{
           {"m", "m (mamba2)"}, {"d", "d (gated_deltanet)"}, {"c", "c (convolved_attention)"}}) {
    const Lines problems = of("t" + letter, true);
    ASSERT_EQ(problems.size(), 1u) << letter;
    EXPECT_TRUE(problems[0].starts_with(
        concat("model.mixers: got t", letter, ", but ", name, " sees only earlier tokens; an ")))
        << problems[0];
  }
  const Lines unknown = of("tx", false);
  ASSERT_EQ(unknown.size(), 1u);
  EXPECT_TRUE(unknown[0].starts_with("model.mixers: got tx, want letters a (attention), c "))
      << unknown[0];
}

TEST(SemiseparableConfig, RejectsKeyOfOtherFamily) {
  ModelConfig config{.family = "gpt2", .bidirectional = true};
  const std::vector<std::string> wanted{
      "model.bidirectional: got true, but the family gpt2 has no such key; leave it out"};
  EXPECT_EQ(problems_in(config), wanted);
}

TEST(SemiseparableConfig, RejectsInvalidSizesInOneLine) {
  ModelConfig config = model_of("p", false);
  config.semiseparable.rank = 41;
  const std::vector<std::string> rank{
      "model.semiseparable.rank: got 41, want at most the rank of a matrix of model.context "
      "tokens, 40"};
  EXPECT_EQ(problems_in(config), rank);
  config.mixers = "m";  // without such a matrix
  EXPECT_TRUE(problems_in(config).empty());
  config = model_of("p", false);
  config.context = 1 << 20;
  const std::vector<std::string> tables{
      "model.context: got 1048576, but the tables of T + U·Vᵀ by position (p) have one row per "
      "position; want at most 65536, such as data.sequence_length"};
  EXPECT_EQ(problems_in(config), tables);
}

}  // namespace
}  // namespace hybrid_trainer::testing
