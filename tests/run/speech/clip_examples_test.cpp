#include "src/run/speech/clips.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

/// A BPE of all bytes that merges a space with H, followed by Whisper's tokens and two added words.
std::string whisper_tokenizer() {
  const auto is_plain = [](int byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
  };
  std::string vocabulary, added;
  int others = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const int point = is_plain(byte) ? byte : others++;
    vocabulary +=
        concat(byte == 0 ? "" : ",", "\"\\u0", point < 256 ? "0" : "1",
               "0123456789abcdef"[point / 16 % 16], "0123456789abcdef"[point % 16], "\":", byte);
  }
  vocabulary += ",\"\\u0120H\":256";
  int id = 257;
  const auto add = [&](const std::string& token, bool is_special) {
    added += concat(added.empty() ? "" : ",", R"({"id":)", id++, R"(,"content":")", token,
                    R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,)",
                    R"("special":)", is_special ? "true" : "false", "}");
  };
  for (const char* token : {"<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|zh|>",
                            "<|bn|>", "<|translate|>", "<|transcribe|>", "<|notimestamps|>"})
    add(token, true);
  for (int i = 0; i < 10; ++i) add(concat("<|0.", i * 2 / 10, i * 2 % 10, "|>"), false);
  add("Kubernetes", false);
  add("<|laughs|>", true);
  return concat(
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)", added,
      R"(],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,)",
      R"("trim_offsets":true,"use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel",)",
      R"("add_prefix_space":true,"trim_offsets":true,"use_regex":true},"model":{"type":"BPE",)",
      R"("dropout":null,"unk_token":null,"continuing_subword_prefix":null,)",
      R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"vocab":{)", vocabulary,
      R"(},"merges":["\u0120 H"]}})");
}

class ClipExamples : public ::testing::Test {
 protected:
  SpeechTokens tokens(const std::string& keys = "{}") const {
    const auto path = folder_.write("generation_config.json", keys);
    return read_speech_tokens(*tokenizer_, read_generation_keys({path.parent_path()}));
  }
  /// The decoded example, or the error.
  std::string learned(const std::string& text, const std::string& language,
                      const std::string& keys = "{}") const {
    try {
      const ChatFiles chat;
      const ExampleFormat format{.tokenizer = *tokenizer_, .chat = chat};
      return tokenizer_->decode(
          clip_example({.text = text, .language = language}, format, tokens(keys)).tokens);
    } catch (const DataError& error) {
      return error.what();
    }
  }
  TemporaryFolder folder_;
  const std::unique_ptr<Tokenizer> tokenizer_ =
      load_tokenizer(folder_.write("tokenizer.json", whisper_tokenizer()));
};

TEST_F(ClipExamples, TextPrefixMatchesWhisper) {
  const std::string plain = "<|transcribe|><|notimestamps|>", end = "<|endoftext|>";
  const auto in = [&](const char* language) {
    return concat("<|startoftranscript|><|", language, "|>");
  };
  EXPECT_EQ(learned("Hello", "en"), in("en") + plain + " Hello" + end);
  EXPECT_EQ(learned("  Hello", "en"), in("en") + plain + " Hello" + end);
  EXPECT_EQ(learned("you", "en"), in("en") + plain + " you" + end);
  EXPECT_EQ(learned("今天", "zh"), in("zh") + plain + "今天" + end);
  EXPECT_EQ(learned("OK", "zh"), in("zh") + plain + "OK" + end);
  EXPECT_EQ(learned("হ্যালো", "bn"), in("bn") + plain + "হ্যালো" + end)
      << "the space would be a separate token";
}

TEST_F(ClipExamples, AcceptsLanguageNamesCodesAndTokens) {
  for (const char* language : {"de", "DE", "german", "German", "<|de|>"})
    EXPECT_NE(learned("Hallo", language).find("<|de|>"), std::string::npos) << language;
  expect_words(learned("Hallo", "french"), {"got \"french\"", "en"});
  expect_words(learned("Hallo", ""), {"\"language\" is missing"});
}

TEST_F(ClipExamples, TimestampsReplaceNoTimestampsToken) {
  EXPECT_EQ(learned("<|0.00|> Hello<|0.08|><|0.08|> you<|0.18|>", "en"),
            "<|startoftranscript|><|en|><|transcribe|><|0.00|> Hello<|0.08|><|0.08|> you<|0.18|>"
            "<|endoftext|>");
  expect_words(learned("Hello<|0.08|>", "en"), {"<|0.08|>", "is not at the beginning of the text"});
  expect_words(learned("<|0.00|> Hello<|0.07|>", "en"), {"no timestamp <|0.07|>", "0.02 s"});
  expect_words(learned("<|0.08|> Hello<|0.02|>", "en"), {"<|0.02|>", "less than the previous"});
}

TEST_F(ClipExamples, RejectsWhisperTokensButLearnsAddedOnes) {
  for (const char* token : {"<|en|>", "<|endoftext|>", "<|notimestamps|>"})
    expect_words(learned(concat("Hello ", token), "en"), {"special token", token});
  const std::string text = learned("Kubernetes<|laughs|> now", "en");
  EXPECT_NE(text.find("Kubernetes<|laughs|> now"), std::string::npos) << text;
  const std::vector<std::int32_t> ids = tokenizer_->encode(text, ControlText::kAsTokens);
  EXPECT_EQ(tokens().text_of(*tokenizer_, ids), " Kubernetes now") << "as decoded by transformers";
}

TEST_F(ClipExamples, ReadsLanguageAndTaskFromFolder) {
  struct Case {
    const char *keys, *language;  // requested language
    const char* prompt;
  };
  const Case cases[] = {
      {R"({"language": "german"})", "", "<|de|><|transcribe|>"},
      {R"({"language": "<|de|>", "task": "translate"})", "", "<|de|><|translate|>"},
      {R"({"language": "de", "task": "translate"})", "en", "<|en|><|translate|>"},
      {R"({"forced_decoder_ids": [[1, 260], [2, 263]]})", "", "<|de|><|translate|>"},
      {R"({"forced_decoder_ids": [[1, 260], [2, 263]]})", "en", "<|en|><|transcribe|>"},
      {R"({"forced_decoder_ids": [[1, 260], [2, 263]], "task": "transcribe"})", "zh",
       "<|zh|><|transcribe|>"},
      {R"({"language": "de", "return_timestamps": true})", "", "<|de|><|transcribe|>"},
  };
  for (const Case& one : cases) {
    const SpeechTokens read = tokens(one.keys);
    const SpeechPrompt prompt = read.completed({.language = one.language});
    EXPECT_EQ(
        tokenizer_->decode(read.prompt(prompt)),
        concat("<|startoftranscript|>", one.prompt, prompt.timestamps ? "" : "<|notimestamps|>"))
        << one.keys;
  }
  EXPECT_TRUE(tokens(R"({"return_timestamps": true})").completed({}).timestamps);
  EXPECT_EQ(tokens(R"({"forced_decoder_ids": [[1, null], [2, 264]]})").completed({}).language, "")
      << "the model detects the language";
  EXPECT_EQ(learned("Hallo", "", R"({"language": "german"})").find("<|startoftranscript|><|de|>"),
            0u);
  const SpeechTokens few = tokens(R"({"lang_to_id": {"<|de|>": 260, "<|en|>": 259}})");
  EXPECT_EQ(few.languages.size(), 2u);
  EXPECT_THROW(few.language("zh"), UsageError);
  const SpeechTokens english = tokens(R"({"is_multilingual": false})");
  EXPECT_EQ(english.prompt(english.completed({.language = "english"})).size(), 2u);
  EXPECT_THROW(english.completed({.language = "de"}), UsageError);
  EXPECT_THROW(english.completed({.translates = true}), UsageError);
  for (const char* wrong :
       {R"({"language": "french"})", R"({"task": "sing"})", R"({"forced_decoder_ids": [[1, 7]]})",
        R"({"forced_decoder_ids": [[2, 260]]})"})
    EXPECT_THROW(tokens(wrong), DataError) << wrong;
}

}  // namespace
}  // namespace hybrid_trainer
