#include "hybrid_trainer/generation/text_generation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_family.h"
#include "tests/support/parameters.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kContext = 8;

class TextGeneration : public ::testing::Test {
 protected:
  std::unique_ptr<LanguageModel> model(std::int64_t vocabulary) {
    return make_model(
        {.layers = 2, .heads = 2, .width = 32, .context = kContext, .vocabulary = vocabulary}, 3,
        stream_);
  }

  /// Makes `token` by far the likeliest after any text: the last LayerNorm outputs its embedding.
  void always_answer(LanguageModel& model, std::int32_t token) {
    const Parameter* table = nullptr;
    model.visit_parameters([&](Parameter& p) {
      if (p.name() == "wte.weight") table = &p;
      if (p.name() == "ln_f.weight") fill_zero(testing::master_of(p), stream_);
      if (p.name() != "ln_f.bias") return;
      const std::int64_t width = p.elements();
      for (std::int64_t c = 0; c < width; ++c) {
        testing::master_of(p).data<float>()[c] =
            1e5f * testing::master_of(*table).data<float>()[token * width + c];
      }
    });
  }

  std::string generate(LanguageModel& model, const Tokenizer& tokenizer, const std::string& prompt,
                       const GenerationSettings& settings) {
    std::string text;
    result_ = generate_text(
        model, tokenizer, prompt, settings, [&](std::string_view piece) { text += piece; },
        stream_);
    return text;
  }

  Stream stream_{MemoryPool::create("test")};
  GenerationResult result_;
};

TEST_F(TextGeneration, CachedLogitsMatchUncachedBeyondContext) {
  const auto gpt2_owner = model(61);
  LanguageModel& gpt2 = *gpt2_owner;
  CachedDecoder decoder(gpt2, DType::kF32, stream_);
  std::vector<std::int32_t> text;
  for (int step = 0; step < 20; ++step) {
    std::vector<std::int32_t> fresh{(step * 17 + 5) % 61};
    if (step == 0) fresh = {1, 50, 7};
    text.insert(text.end(), fresh.begin(), fresh.end());
    decoder.see(text);
    const auto cached = decoder.logits();
    ASSERT_EQ(cached.size(), 61u);
    ASSERT_LE(decoder.window(), kContext);

    const std::int64_t seen = decoder.window();
    const Tensor tokens = Tensor::empty({1, seen}, DType::kI32, MemoryKind::kData, stream_);
    std::copy(text.end() - seen, text.end(), tokens.data<std::int32_t>());
    const Tensor all = gpt2.logits(tokens, {.training = false}, stream_);
    const float* last = all.data<float>() + (seen - 1) * all.size(1);
    for (std::size_t v = 0; v < 61; ++v)
      ASSERT_NEAR(cached[v], last[v], 1e-4) << "step " << step << " word " << v;
  }
}

TEST_F(TextGeneration, RestartsWithHalfContextOnOverflow) {
  const auto gpt2_owner = model(61);
  LanguageModel& gpt2 = *gpt2_owner;
  CachedDecoder decoder(gpt2, DType::kF32, stream_);
  std::vector<std::int32_t> prompt(kContext, 2);
  decoder.see(prompt);
  EXPECT_EQ(decoder.window(), kContext);
  prompt.push_back(3);
  decoder.see(prompt);
  EXPECT_EQ(decoder.window(), kContext / 2);
  prompt.push_back(4);
  decoder.see(prompt);
  EXPECT_EQ(decoder.window(), kContext / 2 + 1);
}

TEST_F(TextGeneration, JointPassMatchesTokenByTokenPass) {
  const auto gpt2 = model(61);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    gpt2->visit_parameters([&](Parameter& p) { p.compute_in(dtype, stream_); });
    CachedDecoder together(*gpt2, dtype, stream_), alone(*gpt2, dtype, stream_);
    const std::vector<std::int32_t> text{1, 50, 7, 33, 2, 60, 9};
    together.see(std::span(text).first(3));
    together.see(text, {.drafted = 3});
    for (std::size_t i = 0; i <= 3; ++i) {
      alone.see(std::span(text).first(i == 0 ? 3 : 3 + i));
      alone.see(std::span(text).first(4 + i));
      const auto at = static_cast<std::int64_t>(i);
      EXPECT_TRUE(std::ranges::equal(together.logits(at), alone.logits())) << i;
    }
  }
}

TEST_F(TextGeneration, ChangedTextMatchesFreshDecoder) {
  const auto gpt2 = model(61);
  CachedDecoder kept(*gpt2, DType::kF32, stream_), fresh(*gpt2, DType::kF32, stream_);
  kept.see(std::vector<std::int32_t>{5, 6, 7, 8, 9});
  const std::vector<std::int32_t> other{5, 6, 1};
  kept.see(other);
  fresh.see(std::span(other).first(2));
  fresh.see(other);
  for (std::size_t v = 0; v < 61; ++v)  // from products of different sizes
    EXPECT_NEAR(kept.logits()[v], fresh.logits()[v], 1e-5);
  kept.see(std::vector<std::int32_t>(20, 3));
  EXPECT_LE(kept.window(), kContext);
  kept.see(other);
  EXPECT_EQ(kept.window(), 3);
  for (std::size_t v = 0; v < 61; ++v) EXPECT_NEAR(kept.logits()[v], fresh.logits()[v], 1e-5);
}

TEST_F(TextGeneration, DraftModelDoesNotChangeText) {
  const auto large = model(256),
             small =
                 make_model({.layers = 1, .heads = 1, .width = 16, .context = 5, .vocabulary = 256},
                            8, stream_);
  const auto bytes = make_byte_tokenizer();
  std::int64_t drafted = 0, taken = 0;
  const auto text_of = [&](DraftModel* draft, const GenerationSettings& settings) {
    std::string text;
    CachedDecoder decoder(*large, DType::kF32, stream_);
    const auto result = continue_text(decoder, draft, *bytes, bytes->encode("To be"), settings,
                                      [&](std::string_view piece) { text += piece; });
    drafted += result.drafted, taken += result.taken;
    EXPECT_LE(result.tokens, settings.tokens);
    return text;
  };
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (const double temperature : {0.0, 0.1, 1.0}) {
      GenerationSettings settings{.tokens = 30,
                                  .sampling = {.temperature = temperature,
                                               .repetition_penalty = seed % 2 == 0 ? 1.0 : 1.3,
                                               .seed = seed}};
      if (seed == 3) settings.stop = {"e", "\x01"};
      const auto length = static_cast<std::int64_t>(seed);
      DraftModel other(*small, DType::kF32, stream_, length + 1),
          same(*large, DType::kF32, stream_, length + 1), free(*large, DType::kF32, stream_);
      const std::string text = text_of(nullptr, settings);
      EXPECT_EQ(drafted, 0);
      EXPECT_EQ(text_of(&other, settings), text);
      drafted = 0;
      EXPECT_EQ(text_of(&same, settings), text);
      EXPECT_GT(drafted, 0);
      EXPECT_GT(taken, 0);
      EXPECT_EQ(text_of(&free, settings), text);
      drafted = taken = 0;
    }
  }
}

TEST_F(TextGeneration, SameSeedGivesSameText) {
  const auto gpt2_owner = model(256);
  LanguageModel& gpt2 = *gpt2_owner;
  const auto bytes = make_byte_tokenizer();
  const GenerationSettings settings{.tokens = 40, .sampling = {.seed = 9}};
  const std::string text = generate(gpt2, *bytes, "To be", settings);
  EXPECT_EQ(result_.tokens, 40);
  EXPECT_EQ(result_.prompt_tokens, 5);
  EXPECT_EQ(generate(gpt2, *bytes, "To be", settings), text);
  EXPECT_NE(generate(gpt2, *bytes, "To be", {.tokens = 40, .sampling = {.seed = 10}}), text);
}

TEST_F(TextGeneration, GreedyTextEqualsTopOne) {
  const auto gpt2_owner = model(256);
  LanguageModel& gpt2 = *gpt2_owner;
  const auto bytes = make_byte_tokenizer();
  EXPECT_EQ(generate(gpt2, *bytes, "x", {.tokens = 20, .sampling = {.temperature = 0}}),
            generate(gpt2, *bytes, "x", {.tokens = 20, .sampling = {.top_k = 1}}));
}

TEST_F(TextGeneration, AcceptsEmptyAndLongPrompts) {
  const auto gpt2_owner = model(256);
  LanguageModel& gpt2 = *gpt2_owner;
  always_answer(gpt2, 'a');
  const auto bytes = make_byte_tokenizer();
  EXPECT_EQ(generate(gpt2, *bytes, "", {.tokens = 3}), "aaa");
  EXPECT_EQ(result_.prompt_tokens, 0);
  EXPECT_EQ(generate(gpt2, *bytes, std::string(100, 'z'), {.tokens = 20}), std::string(20, 'a'));
  EXPECT_EQ(generate(gpt2, *bytes, "z", {.tokens = 0}), "");
}

TEST_F(TextGeneration, ReportsDroppedPromptAndTextTokens) {
  const auto gpt2 = model(256);
  const auto bytes = make_byte_tokenizer();
  generate(*gpt2, *bytes, std::string(100, 'z'), {.tokens = 2});
  EXPECT_EQ(result_.left_out, 94);
  EXPECT_EQ(result_.prompt_tokens, 6) << "the context of 8 minus the tokens to generate";
  EXPECT_EQ(result_.dropped_tokens, 0);
  generate(*gpt2, *bytes, "abc", {.tokens = 6});
  EXPECT_EQ(result_.dropped_tokens, 0);
  generate(*gpt2, *bytes, "abc", {.tokens = 7});
  EXPECT_EQ(result_.dropped_tokens, 5);
  EXPECT_EQ(result_.left_out, 0);
}

TEST_F(TextGeneration, PinnedTokensStayInContext) {
  const auto gpt2 = model(256);
  const auto bytes = make_byte_tokenizer();
  const auto continued = [&](const std::string& prompt, std::int64_t pinned) {
    CachedDecoder decoder(*gpt2, DType::kF32, stream_);
    std::string text;
    continue_text(decoder, nullptr, *bytes, bytes->encode(prompt),
                  {.tokens = 2, .sampling = {.temperature = 0}, .pinned = pinned},
                  [&](std::string_view piece) { text += piece; });
    return text;
  };
  EXPECT_EQ(continued("ABsomething that is long", 2), continued("ABlong", 2));
  EXPECT_EQ(continued("ABsomething that is long", 0), continued("s long", 0));
}

TEST_F(TextGeneration, OverflowThrowsInErrorMode) {
  const auto gpt2 = model(256);
  const auto bytes = make_byte_tokenizer();
  GenerationSettings settings{.tokens = 1, .overflow = ContextOverflow::kError};
  EXPECT_NO_THROW(generate(*gpt2, *bytes, "12345678", settings));
  EXPECT_THROW(generate(*gpt2, *bytes, "123456789", settings), DataError);
  settings.tokens = 2;
  EXPECT_THROW(generate(*gpt2, *bytes, "12345678", settings), DataError);
  EXPECT_NO_THROW(generate(*gpt2, *bytes, "1234567", settings));
}

TEST_F(TextGeneration, UnfinishedCharacterAtEndIsReplaced) {
  const auto gpt2 = model(256);
  always_answer(*gpt2, 0xE2);
  const auto bytes = make_byte_tokenizer();
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(generate(*gpt2, *bytes, "a", {.tokens = 1}), mark);
  EXPECT_EQ(generate(*gpt2, *bytes, "a", {.tokens = 3}), mark + mark + mark);
  GenerationSettings settings{.tokens = 2};
  settings.stop = {mark};
  EXPECT_EQ(generate(*gpt2, *bytes, "a", settings), "");
}

TEST_F(TextGeneration, AllocatesForTextNotForContext) {
  ModelConfig config{.layers = 2, .heads = 2, .width = 32, .context = 1 << 20, .vocabulary = 61};
  config.family = "llama";
  const auto llama = make_model(config, 3, stream_);
  const Stream own(MemoryPool::create("caches"));
  const std::size_t before = stream_.pool()->use().live_total;
  CachedDecoder decoder(*llama, DType::kF32, own), roomy(*llama, DType::kF32, own);
  roomy.reserve(64);
  std::vector<std::int32_t> text{1};
  for (std::int32_t token = 2; token < 40; ++token) {
    decoder.see(text);
    roomy.see(text);
    ASSERT_TRUE(std::ranges::equal(decoder.logits(), roomy.logits())) << token;
    text.push_back(token);
  }
  EXPECT_LT(own.pool()->use().peak_total, std::size_t{1} << 20) << "the full context takes 512 MiB";
  EXPECT_EQ(stream_.pool()->use().live_total, before);
}

TEST_F(TextGeneration, EndOfTextTokenEndsGeneration) {
  const auto gpt2_owner = model(600);
  LanguageModel& gpt2 = *gpt2_owner;
  const auto bpe = load_tokenizer(std::string(HT_TEST_DATA_DIR) + "/bpe_small");
  always_answer(gpt2, bpe->end_of_text().value());
  EXPECT_EQ(generate(gpt2, *bpe, "Call me", {.tokens = 10}), "");
  EXPECT_EQ(result_.tokens, 0);
}

TEST_F(TextGeneration, StopStringEndsTextBeforeMatch) {
  const auto gpt2_owner = model(256);
  LanguageModel& gpt2 = *gpt2_owner;
  const auto bytes = make_byte_tokenizer();
  const GenerationSettings free{.tokens = 40, .sampling = {.seed = 9}};
  const std::string text = generate(gpt2, *bytes, "To be", free);
  GenerationSettings stopped = free;
  stopped.stop = {"never there", text.substr(text.size() / 2, 3)};
  EXPECT_EQ(generate(gpt2, *bytes, "To be", stopped), text.substr(0, text.find(stopped.stop[1])));
  EXPECT_LT(result_.tokens, 40);
  stopped.stop = {"never there"};
  EXPECT_EQ(generate(gpt2, *bytes, "To be", stopped), text);
  stopped.stop = {""};
  EXPECT_THROW(generate(gpt2, *bytes, "To be", stopped), UsageError);
}

TEST_F(TextGeneration, RepetitionPenaltyIncludesPrompt) {
  const auto gpt2_owner = model(256);
  LanguageModel& gpt2 = *gpt2_owner;
  always_answer(gpt2, 'a');
  const auto bytes = make_byte_tokenizer();
  GenerationSettings settings{.tokens = 1, .sampling = {.temperature = 0}};
  ASSERT_EQ(generate(gpt2, *bytes, "xa", settings), "a");
  settings.sampling.repetition_penalty = 1e9;
  EXPECT_NE(generate(gpt2, *bytes, "xa", settings), "a");
  EXPECT_EQ(generate(gpt2, *bytes, "x", settings), "a");
}

TEST_F(TextGeneration, AddsTemplateAndDecodesByteTokens) {
  const auto llama =
      load_tokenizer(std::string(HT_TEST_DATA_DIR) + "/tokenizers/llama2_legacy.json");
  const auto owner = model(llama->vocabulary_size());
  constexpr std::int32_t kByteA = 3 + 'A';  // "<0x41>", after <unk>, <s> and </s>
  always_answer(*owner, kByteA);
  EXPECT_EQ(generate(*owner, *llama, "the", {.tokens = 3}), "AAA");
  EXPECT_EQ(result_.prompt_tokens, static_cast<std::int64_t>(llama->encode("the").size()) + 1);
}

TEST_F(TextGeneration, PromptParsesSpecialTokensUnlessText) {
  const auto llama = load_tokenizer(std::string(HT_TEST_DATA_DIR) + "/tokenizers/llama3.json");
  const std::vector<std::int32_t> start = llama->template_start();
  ASSERT_EQ(start.size(), 1u);
  const std::string spelt(llama->token_bytes(start.front()));
  EXPECT_EQ(prompt_tokens(*llama, spelt + "a").size(), 2u);
  EXPECT_EQ(prompt_tokens(*llama, spelt + "a"), prompt_tokens(*llama, "a"));
  const auto as_text = prompt_tokens(*llama, spelt + "a", ControlText::kAsText);
  EXPECT_GT(as_text.size(), 3u);
  EXPECT_EQ(llama->decode(as_text), spelt + spelt + "a");
}

TEST_F(TextGeneration, NeverDrawsTokensMissingInTokenizer) {
  const auto gpt2_owner = model(300);
  LanguageModel& gpt2 = *gpt2_owner;
  always_answer(gpt2, 280);
  EXPECT_NO_THROW(generate(gpt2, *make_byte_tokenizer(), "a", {.tokens = 5}));
  EXPECT_EQ(result_.tokens, 5);
}

TEST_F(TextGeneration, RejectsLargerTokenizerAndInvalidSettings) {
  const auto gpt2_owner = model(61);
  LanguageModel& gpt2 = *gpt2_owner;
  const auto bytes = make_byte_tokenizer();
  EXPECT_THROW(generate(gpt2, *bytes, "a", {}), DataError);
  const auto fitting_owner = model(256);
  LanguageModel& fitting = *fitting_owner;
  EXPECT_THROW(generate(fitting, *bytes, "a", {.tokens = -1}), UsageError);
  EXPECT_THROW(generate(fitting, *bytes, "a", {.tokens = 1, .sampling = {.top_p = 2}}), UsageError);
}

TEST(Utf8Assembler, HoldsBackIncompleteCharacters) {
  Utf8Assembler assembler;
  EXPECT_EQ(assembler.add("a\xE2"), "a");
  EXPECT_EQ(assembler.add("\x82"), "");
  EXPECT_EQ(assembler.add("\xAC"
                          "b"),
            "\xE2\x82\xAC"
            "b");
  EXPECT_EQ(assembler.add("\xF0\x9F\x98"), "");
  EXPECT_EQ(assembler.add("\x80\xC3"), "\xF0\x9F\x98\x80");
}

TEST(Utf8Assembler, ReplacesInvalidBytes) {
  const std::string replacement = "\xEF\xBF\xBD";
  EXPECT_EQ(Utf8Assembler().add("\x80z"), replacement + "z");
  EXPECT_EQ(Utf8Assembler().add("\xC3z"), replacement + "z");
  EXPECT_EQ(Utf8Assembler().add("\xFF\xC0\xF5"), replacement + replacement + replacement);
  EXPECT_EQ(Utf8Assembler().add("\xED\xA0\x80"),
            replacement + replacement + replacement);  // a surrogate
  EXPECT_EQ(Utf8Assembler().add("\xC3\xC3\xA9"), replacement + "\xC3\xA9");
}

}  // namespace
}  // namespace hybrid_trainer
