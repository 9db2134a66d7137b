#include "src/model_files/hugging_face/generation_config.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

using Tokens = std::vector<std::int32_t>;

TEST(TokenIds, AreReadFromFolderFiles) {
  const TemporaryFolder folder;
  EXPECT_EQ(token_ids_in(folder.path()), "");
  EXPECT_EQ(end_token_ids_in(folder.path()), Tokens{});
  write_text(folder / "config.json", R"({"bos_token_id": 3, "eos_token_id": [5, 4], "width": 8})");
  EXPECT_EQ(token_ids_in(folder.path()), R"({"bos_token_id":3,"eos_token_id":[5,4]})");
  EXPECT_EQ(generation_end_tokens_in(folder.path()), (Tokens{5, 4}));
  write_text(folder / "generation_config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(generation_end_tokens_in(folder.path()), Tokens{7});
  EXPECT_EQ(end_token_ids_in(folder.path()), (Tokens{4, 5, 7}));
  for (const char* bad : {R"({"eos_token_id": "x"})", R"({"eos_token_id": -1})", "[]"}) {
    write_text(folder / "generation_config.json", bad);
    const std::string message = message_of<DataError>([&] { end_token_ids_in(folder.path()); });
    EXPECT_TRUE(contains(message, "generation_config.json"));
    EXPECT_TRUE(contains(message, "want"));
  }
}

TEST(TokenIds, OutOfRangeNumbersAreRejectedByKey) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& text) {
    write_text(folder / "generation_config.json", text);
    return message_of<DataError>([&] {
      read_generation_keys({folder.path()});
      generation_end_tokens_in(folder.path());
    });
  };
  std::string ends = "1";
  for (int i = 0; i < 1000; ++i) ends += ",1";
  for (const auto& [text, words] : std::vector<std::pair<std::string, const char*>>{
           {R"({"num_beams": 65})", "num_beams: got 65, want a whole number from 0 to 64"},
           {R"({"max_length": 2147483648})", "max_length: got 2147483648"},
           {R"({"forced_bos_token_id": 4294967295})", "forced_bos_token_id is 4294967295; want"},
           {R"({"eos_token_id": 2147483648})", "eos_token_id is 2147483648; want"},
           {R"({"eos_token_id": [)" + ends + "]}", "has 1001 tokens, want at most 1000"}})
    EXPECT_TRUE(contains(refusal(text), words)) << refusal(text);
}

TEST(TokenIds, MissingEndTokensAreAdded) {
  const std::string text = R"({"eos_token_id": [1, 2], "top_k": 3})";
  EXPECT_EQ(with_end_tokens(text, Tokens{2, 1}), text);
  const TemporaryFolder folder;
  write_text(folder / "config.json", with_end_tokens(text, Tokens{2, 9}));
  EXPECT_EQ(token_ids_in(folder.path()), R"({"eos_token_id":[1,2,9],"top_k":3})");
  write_text(folder / "config.json", with_end_tokens(R"({"eos_token_id": null})", Tokens{9}));
  EXPECT_EQ(token_ids_in(folder.path()), R"({"eos_token_id":9})");
}

/// Generation keys are in either file, and are kept when a run or an export writes a new one.
TEST(GenerationKeys, GenerationConfigOverridesConfig) {
  const TemporaryFolder folder, adapter;
  EXPECT_TRUE(read_generation_keys({folder.path()}).file.empty());
  write_text(folder / "config.json", R"({"eos_token_id": 2, "decoder_start_token_id": 5,
      "suppress_tokens": [7], "max_length": 9, "num_beams": 4, "forced_decoder_ids": [[1, 3]],
      "hidden_size": 8, "use_cache": true, "bad_words_ids": [[1]]})");
  EXPECT_EQ(token_ids_in(folder.path()),
            R"({"eos_token_id":2,"decoder_start_token_id":5,"suppress_tokens":[7],"max_length":9,)"
            R"("num_beams":4,"forced_decoder_ids":[[1,3]],"bad_words_ids":[[1]]})");
  GenerationKeys keys = read_generation_keys({adapter.path(), "", folder.path()});
  EXPECT_EQ(keys.beams, 4);
  EXPECT_EQ(keys.rules.suppressed, Tokens{7});
  EXPECT_EQ(keys.speech.forced.size(), 1u);
  write_text(adapter / "generation_config.json", R"({"num_beams": 2, "top_k": null})");
  keys = read_generation_keys({adapter.path(), folder.path()});
  EXPECT_EQ(keys.beams, 2);
  EXPECT_EQ(keys.most, 0);
  EXPECT_EQ(keys.start, 5) << "from either file";
  EXPECT_EQ(keys.end_tokens, Tokens{2});
  write_text(folder / "generation_config.json", "{}");
  EXPECT_EQ(token_ids_in(folder.path()), R"({"eos_token_id":2,"decoder_start_token_id":5})");
}

TEST(GenerationKeys, UnsupportedKeysAreRejectedByName) {
  const TemporaryFolder folder;
  const auto problem = [&](const std::string& text) -> std::string {
    write_text(folder / "generation_config.json", text);
    const GenerationKeys keys = read_generation_keys({folder.path()});
    try {
      keys.require_honored();
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  for (const char* harmless :
       {R"({"bad_words_ids": null, "guidance_scale": 1, "typical_p": 1.0, "diversity_penalty": 0})",
        R"({"typical_p": 0.9, "top_h": 0.4})",  // requires do_sample
        R"({"cache_implementation": "static", "use_cache": false, "output_scores": true})"})
    EXPECT_EQ(problem(harmless), "") << harmless;
  for (const char* key : {"bad_words_ids", "guidance_scale", "stop_strings", "sequence_bias",
                          "no_speech_threshold", "encoder_repetition_penalty"})
    EXPECT_TRUE(contains(problem(concat("{\"", key, "\": [2]}")), key)) << key;
  EXPECT_TRUE(contains(problem(R"({"do_sample": true, "typical_p": 0.9})"), "typical_p"));
  for (const char* wrong :
       {R"({"num_beams": "x"})", R"({"repetition_penalty": 0})", R"({"suppress_tokens": ["a"]})",
        R"({"early_stopping": 3})", R"({"forced_decoder_ids": [[2, 1]]})", R"({"do_sample": 1})"})
    EXPECT_THROW(problem(wrong), DataError) << wrong;
  for (const char* wrong :
       {R"("temperature": [0.0, 0.2])", R"("temperature": "hot")", R"("max_length": [1])",
        R"("max_length": -5)", R"("return_timestamps": "word")", R"("forced_decoder_ids": 3)"})
    EXPECT_THROW(
        problem(concat(R"({"suppress_tokens": [1, 2], "eos_token_id": [3, 4], )", wrong, "}")),
        DataError)
        << wrong << " after lists";
}

TEST(GenerationKeys, ForcedTokensAreReadFromEitherFile) {
  const TemporaryFolder folder;
  write_text(folder / "config.json", R"({"forced_decoder_ids": [[1, 3]]})");
  const auto forced = [&](const char* text) {
    write_text(folder / "generation_config.json", text);
    return read_generation_keys({folder.path()}).speech.forced;
  };
  using Forced = std::vector<std::optional<std::int32_t>>;
  EXPECT_EQ(forced("{}"), Forced{3});
  EXPECT_EQ(forced(R"({"forced_decoder_ids": [[1, 5]]})"), Forced{5});
  EXPECT_EQ(forced(R"({"language": "en"})"), Forced{});
  EXPECT_EQ(forced(R"({"task": "translate"})"), Forced{});
}

}  // namespace
}  // namespace hybrid_trainer
