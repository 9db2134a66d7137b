#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/data/text/bpe_training.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

const std::string kText = "the cat sat on the mat\n the dog  sat on the cat, isn't it?\n";

std::unique_ptr<Tokenizer> trained() {
  BpeTrainer trainer(270);
  trainer.add(std::array{std::string_view(kText)});
  return std::move(trainer.train().tokenizer);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return text.replace(place, from.size(), to);
}

/// The error for a small BPE's tokenizer.json in which `to` replaces `from`.
std::string refusal(std::string_view from, std::string_view to) {
  const TemporaryFolder folder;
  trained()->save(folder.path());
  const std::string good = read_text(folder / "tokenizer.json");
  folder.write("tokenizer.json", replaced(good, from, to));
  const auto message = message_of<DataError>([&] { load_tokenizer(folder.path()); });
  expect_words(message, {"tokenizer.json"});
  return message;
}

TEST(TokenizerFiles, EachKindRoundTrips) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(make_byte_tokenizer());
  tokenizers.push_back(make_character_tokenizer(kText + "é漢\xFF"));
  tokenizers.push_back(trained());
  for (const auto& tokenizer : tokenizers) {
    const TemporaryFolder folder;
    tokenizer->save(folder.path());
    const auto loaded = load_tokenizer(folder.path());
    EXPECT_EQ(loaded->kind(), tokenizer->kind());
    EXPECT_EQ(loaded->vocabulary_size(), tokenizer->vocabulary_size());
    EXPECT_EQ(loaded->end_of_text(), tokenizer->end_of_text());
    EXPECT_EQ(loaded->encode(kText), tokenizer->encode(kText));
    EXPECT_EQ(loaded->last_split_point("", 0), 0u);
    for (std::int32_t id = 0; id < tokenizer->vocabulary_size(); ++id) {
      EXPECT_EQ(loaded->token_bytes(id), tokenizer->token_bytes(id));
    }
  }
}

TEST(TokenizerFiles, AcceptsMergesAsArrays) {
  const TemporaryFolder folder;
  trained()->save(folder.path());
  std::string text = read_text(folder / "tokenizer.json");
  text = replaced(text, "\"merges\":[\"a t\"", "\"merges\":[[\"a\",\"t\"]");
  folder.write("tokenizer.json", text);
  EXPECT_EQ(load_tokenizer(folder.path())->encode(kText), trained()->encode(kText));
}

/// As sentence-transformers does: the normalizer Lowercase is the first, once.
TEST(TokenizerFiles, SentenceSettingsLowerTheCase) {
  const TemporaryFolder folder, copy;
  trained()->save(folder.path());
  folder.write("sentence_bert_config.json", "{\"do_lower_case\": true}");
  const auto lowers = load_tokenizer(folder.path());
  EXPECT_EQ(lowers->encode("The CAT"), trained()->encode("the cat"));
  lowers->save(copy.path());
  EXPECT_EQ(load_tokenizer(copy.path())->encode("The CAT"), trained()->encode("the cat"));
  copy.write("sentence_bert_config.json", "{\"do_lower_case\": true}");
  const std::string before = read_text(copy / "tokenizer.json");
  load_tokenizer(copy.path())->save(copy.path());
  EXPECT_EQ(read_text(copy / "tokenizer.json"), before);
  folder.write("sentence_bert_config.json", "{\"do_lower_case\": false}");
  EXPECT_NE(load_tokenizer(folder.path())->encode("The CAT"), trained()->encode("the cat"));
  folder.write("sentence_bert_config.json", "{\"do_lower_case\": true}");
  std::filesystem::remove(folder / "tokenizer.json");
  expect_words(message_of<DataError>([&] { load_tokenizer(folder.path()); }),
               {"do_lower_case", "needs a tokenizer.json"});
}

/// As transformers does: BertTokenizer's settings precede those of tokenizer.json.
TEST(TokenizerFiles, BertSettingsSetTheNormalizer) {
  const TemporaryFolder folder, copy;
  folder.write("tokenizer.json", R"({"model": {"type": "WordPiece", "unk_token": "[UNK]",
      "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
      "vocab": {"[UNK]": 0, "Cat": 1, "cat": 2}}, "added_tokens": [], "post_processor": null,
      "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                     "strip_accents": null, "lowercase": false},
      "pre_tokenizer": {"type": "BertPreTokenizer"},
      "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true}})");
  const auto id = [&](const std::string& settings, const std::string& config) {
    folder.write("tokenizer_config.json", settings);
    folder.write("config.json", config);
    return load_tokenizer(folder.path())->encode("Cat").at(0);
  };
  EXPECT_EQ(id("{}", "{}"), 1);
  EXPECT_EQ(id("{}", R"({"model_type": "bert"})"), 2);
  EXPECT_EQ(id(R"({"do_lower_case": false})", R"({"model_type": "bert"})"), 1);
  EXPECT_EQ(id(R"({"do_lower_case": true, "tokenizer_class": "PreTrainedTokenizerFast"})",
               R"({"model_type": "bert"})"),
            1);
  EXPECT_EQ(id(R"({"tokenizer_class": "BertTokenizerFast"})", "{}"), 2);
  load_tokenizer(folder.path())->save(copy.path());
  std::filesystem::remove(copy / "tokenizer_config.json");
  EXPECT_EQ(load_tokenizer(copy.path())->encode("Cat").at(0), 2);
}

TEST(TokenizerFiles, AddsPrefixSpaceOncePerDocument) {
  const TemporaryFolder folder;
  trained()->save(folder.path());
  const std::string text = read_text(folder / "tokenizer.json");
  folder.write("tokenizer.json",
               replaced(text, "\"add_prefix_space\":false", "\"add_prefix_space\":true"));
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode("the"), trained()->encode(" the"));
  EXPECT_EQ(tokenizer->encode(" the"), trained()->encode(" the"));
  EXPECT_TRUE(tokenizer->encode("").empty());
  std::vector<std::int32_t> rest;
  tokenizer->append_tokens("the", rest, TextStart::kContinuation);
  EXPECT_EQ(rest, trained()->encode("the"));
}

TEST(TokenizerFiles, TokenizerConfigOverridesPrefixSpace) {
  const TemporaryFolder folder;
  trained()->save(folder.path());
  const auto has_prefix = [&](const std::string& config) {
    folder.write("tokenizer_config.json", config);
    return load_tokenizer(folder.path())->encode("the") == trained()->encode(" the");
  };
  const std::string on = "{\"add_prefix_space\":true}", off = "{\"add_prefix_space\":false}";
  EXPECT_TRUE(has_prefix(on));
  EXPECT_FALSE(has_prefix("{\"model_max_length\":1024}"));
  folder.write("tokenizer.json",
               replaced(read_text(folder / "tokenizer.json"), "\"add_prefix_space\":false",
                        "\"add_prefix_space\":true"));
  EXPECT_FALSE(has_prefix(off));
  EXPECT_TRUE(has_prefix("{\"add_prefix_space\":null}"));
  std::filesystem::remove(folder / "tokenizer.json");  // so that vocab.json and merges.txt are read
  EXPECT_TRUE(has_prefix(on));
  EXPECT_FALSE(has_prefix(off));

  folder.write("tokenizer_config.json", "{\"add_prefix_space\":\"yes\"}");
  expect_words(message_of<DataError>([&] { load_tokenizer(folder.path()); }),
               {"tokenizer_config.json", "add_prefix_space", "\"yes\"", "true or false"});
}

TEST(TokenizerFiles, RejectsUnsupportedFeaturesByPath) {
  const std::string_view no_normalizer = "\"normalizer\":null";
  expect_words(refusal(no_normalizer, "\"normalizer\":{\"type\":\"ByteLevel\"}"),
               {"normalizer is ByteLevel"});
  expect_words(refusal(no_normalizer,
                       "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":"
                       "[{\"type\":\"NFC\"},{\"type\":\"Lowest\"}]}"),
               {"normalizer.normalizers[1] is Lowest"});
  expect_words(refusal(no_normalizer,
                       "\"normalizer\":{\"type\":\"Replace\",\"pattern\":"
                       "{\"Regex\":\"(\"},\"content\":\"\"}"),
               {"normalizer.pattern.Regex"});
  expect_words(refusal("\"model\":{\"type\":\"BPE\"", "\"model\":{\"type\":\"WordLevel\""),
               {"model.type", "WordLevel"});
  expect_words(refusal("\"model\":{\"type\":\"BPE\"", "\"model\":{\"type\":\"Unigram\""),
               {"pre_tokenizer", "ByteLevel", "Unigram"});
  const std::string_view byte_level = "\"pre_tokenizer\":{\"type\":\"ByteLevel\"";
  expect_words(refusal(byte_level, "\"pre_tokenizer\":{\"type\":\"UnicodeScripts\""),
               {"pre_tokenizer is UnicodeScripts"});
  expect_words(refusal("\"dropout\":null", "\"dropout\":0.1"), {"model.dropout", "not supported"});
  expect_words(
      refusal("\"post_processor\":null", "\"post_processor\":{\"type\":\"BertProcessing\"}"),
      {"post_processor has no \"cls\""});
  expect_words(refusal("\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"CTC\""),
               {"decoder is CTC"});
}

TEST(TokenizerFiles, RejectsInvalidPatternWithPosition) {
  const auto with = [](std::string_view pattern, std::string_view behavior) {
    return concat(
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",",
        "\"pattern\":{\"Regex\":\"", pattern, "\"},\"behavior\":\"", behavior,
        "\",\"invert\":false},{\"type\":\"ByteLevel\"");
  };
  const TemporaryFolder folder;
  trained()->save(folder.path());
  const std::string good = read_text(folder / "tokenizer.json");
  const auto message = [&](std::string_view pattern, std::string_view behavior) {
    std::string text =
        replaced(good, "\"pre_tokenizer\":{\"type\":\"ByteLevel\"", with(pattern, behavior));
    text = replaced(text, "},\"post_processor\"", "}]},\"post_processor\"");
    folder.write("tokenizer.json", text);
    return message_of<DataError>([&] { load_tokenizer(folder.path()); });
  };
  expect_words(message("a|(b", "Isolated"),
               {"pre_tokenizer.pretokenizers[0].pattern.Regex", "a|(b", "parenthesis at byte 4"});
  expect_words(message("a", "Sideways"), {"pretokenizers[0].behavior", "Sideways"});
}

TEST(TokenizerFiles, RejectsInvalidAddedTokens) {
  expect_words(refusal("\"id\":267", "\"id\":-1"), {"added_tokens[0].id", "-1"});
  expect_words(refusal("\"special\":true", "\"special\":1"), {"added_tokens[0].special"});
  expect_words(refusal("\"normalized\":false", "\"normalized\":1"), {"added_tokens[0].normalized"});
}

TEST(TokenizerFiles, RejectsInvalidTemplates) {
  const auto with = [](const char* ids, const char* single) {
    return concat("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[", single,
                  "],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[", ids,
                  "],\"tokens\":[\"<s>\"]}}}");
  };
  const std::string_view none = "\"post_processor\":null";
  const char* start = "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}";
  const std::string both = concat(start, ",{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}");
  expect_words(refusal(none, with("270", both.c_str())),
               {"post_processor.special_tokens.<s>.ids[0]", "270"});
  expect_words(refusal(none, with("1", start)), {"post_processor.single", "Sequence"});
  expect_words(refusal(none, replaced(with("1", both.c_str()), "\"id\":\"<s>\",\"type_id\"",
                                      "\"id\":\"<x>\",\"type_id\"")),
               {"post_processor.special_tokens", "<x>"});
}

TEST(TokenizerFiles, RobertaTemplateEnclosesText) {
  const auto with = [](const char* last) {
    return concat("\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"!\",", last,
                  "],\"cls\":[\"at\",5],\"trim_offsets\":true,\"add_prefix_space\":false}");
  };
  const std::string_view none = "\"post_processor\":null";
  const TemporaryFolder folder;
  trained()->save(folder.path());
  folder.write("tokenizer.json", replaced(read_text(folder / "tokenizer.json"), none, with("3")));
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->template_start(), std::vector<std::int32_t>{5});
  EXPECT_EQ(tokenizer->template_end(), std::vector<std::int32_t>{3});
  expect_words(refusal(none, with("270")), {"post_processor.sep[1]", "270"});
  expect_words(refusal(none, with("3,4")),
               {"post_processor.sep", "not a pair of a token and its id"});
}

/// Repeated steps that double a text used to exhaust memory, and so did long template parts.
TEST(TokenizerFiles, RejectsUnboundedTextGrowth) {
  const auto listed = [](const std::string& item, int times) {
    std::string items = item;
    for (int i = 1; i < times; ++i) items += "," + item;
    return items;
  };
  const std::string doubling =
      "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}";
  const auto normalizers = [&](const std::string& steps) {
    return concat("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[", steps, "]}");
  };
  const std::string_view none = "\"normalizer\":null";
  expect_words(refusal(none, normalizers(listed(doubling, 40))), {"normalizers[6]", "64 times"});
  expect_words(refusal(none, normalizers(concat("{\"type\":\"Prepend\",\"prepend\":\"",
                                                std::string(65, 'x'), "\"}"))),
               {"normalizers[0]", "64 bytes"});
  const std::string decoder =
      "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
      "\"use_regex\":true}";
  expect_words(refusal(decoder, concat("\"decoder\":{\"type\":\"Sequence\",\"decoders\":[",
                                       listed(doubling, 40), "]}")),
               {"decoders[6]", "64 times"});
  const std::string digits = "{\"type\":\"Digits\",\"individual_digits\":true}";
  expect_words(refusal(none, normalizers(listed("{\"type\":\"NFC\"}", 257))), {"step 257"});
  expect_words(refusal(decoder, concat("\"decoder\":{\"type\":\"Sequence\",\"decoders\":[",
                                       listed("{\"type\":\"Fuse\"}", 257), "]}")),
               {"decoders[256]", "step 257"});
  const std::string pre_tokenizer =
      "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
      "\"trim_offsets\":true,\"use_regex\":true}";
  expect_words(
      refusal(pre_tokenizer, concat("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[",
                                    listed(digits, 257), "]}")),
      {"pretokenizers[256]", "step 257"});
  const std::string start = "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}";
  expect_words(refusal("\"post_processor\":null",
                       concat("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[",
                              listed(start, 65),
                              "],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\","
                              "\"ids\":[1],\"tokens\":[\"<s>\"]}}}")),
               {"post_processor.single[64]", "64 tokens"});
}

TEST(TokenizerFiles, ConfigSelectsEndOfTextToken) {
  const TemporaryFolder folder;
  trained()->save(folder.path());
  const auto end_of_text = [&](const std::string& config) {
    folder.write("tokenizer_config.json", config);
    return load_tokenizer(folder.path())->end_of_text();
  };
  EXPECT_EQ(end_of_text("{}"), 267);
  EXPECT_EQ(end_of_text("{\"eos_token\":\"!\"}"), 0);
  EXPECT_EQ(end_of_text("{\"eos_token\":{\"content\":\"!\"}}"), 0);
  expect_words(message_of<DataError>([&] { end_of_text("{\"eos_token\":\"</s>\"}"); }),
               {"</s>", "eos_token"});
}

TEST(TokenizerFiles, RejectsDamagedVocabulary) {
  expect_words(refusal("\"!\":0,", "\"!\":1,"), {"id 1"});
  expect_words(refusal("\"!\":0,", "\"!\":0,\"!\":0,"), {"model.vocab.!", "twice"});
  expect_words(refusal("\"!\":0,", "\"!\":-1,"), {"-1"});
  expect_words(refusal("\"!\":0,", "\"!\":99999999,"), {"99999999"});
  expect_words(refusal("[\"a t\"", "[\"a qqq\""), {"model.merges[0]", "qqq"});
  expect_words(refusal("[\"a t\"", "[\"at\""), {"model.merges[0]", "two tokens"});
  expect_words(refusal("\"merges\":", "\"mergers\":"), {"model", "merges"});
  expect_words(refusal("\"dropout\":null", "\"dropout\":0.1"), {"model.dropout"});
}

/// Warnings from loading a small BPE with `from` replaced by `to`, and this tokenizer_config.json.
std::string warnings(std::string_view from, std::string_view to, const std::string& config = "{}") {
  const TemporaryFolder folder;
  trained()->save(folder.path());
  folder.write("tokenizer.json", replaced(read_text(folder / "tokenizer.json"), from, to));
  folder.write("tokenizer_config.json", config);
  std::ostringstream said;
  send_warnings_to(&said);
  const auto tokenizer = load_tokenizer(folder.path());
  send_warnings_to(&std::cerr);
  EXPECT_EQ(tokenizer->encode(kText), trained()->encode(kText));
  return said.str();
}

TEST(TokenizerFiles, IgnoresTruncationAndPadding) {
  EXPECT_EQ(warnings("\"truncation\":null",
                     "\"truncation\":{\"max_length\":2,\"strategy\":\"LongestFirst\"}"),
            "");
  EXPECT_EQ(warnings("\"padding\":null", "\"padding\":{\"pad_token\":\"<|endoftext|>\"}"), "");
}

TEST(TokenizerFiles, WarnsOnceAboutUnknownKeys) {
  const std::string of_tokenizer =
      warnings("\"special\":true", "\"special\":true,\"colour\":1,\"null\":null");
  EXPECT_TRUE(of_tokenizer.ends_with(": ignored unknown keys: \"added_tokens[].colour\"\n"))
      << of_tokenizer;
  std::string steps;
  for (int i = 0; i < 12; ++i)
    steps += concat(i > 0 ? "," : "", "{\"type\":\"NFC\",\"size9\":", i, "}");
  const std::string of_steps =
      warnings("\"normalizer\":null",
               concat("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[", steps, "]}"));
  EXPECT_TRUE(of_steps.ends_with(": ignored unknown keys: \"normalizer.normalizers[].size9\"\n"))
      << of_steps;
  const std::string of_config =
      warnings("\"padding\":null", "\"padding\":null",
               R"({"model_max_length": 8, "colour": 1, "clean_up_tokenization_spaces": true,
                   "added_tokens_decoder": {"267": {"content": "<|endoftext|>", "special": true,
                   "size": 2}}, "image_token": "<image>"})");
  EXPECT_TRUE(
      of_config.ends_with("tokenizer_config.json: ignored unknown keys: \"colour\", "
                          "\"added_tokens_decoder.267.size\"\n"))
      << of_config;
  expect_words(message_of<DataError>([] {
                 const TemporaryFolder folder;
                 trained()->save(folder.path());
                 folder.write("tokenizer_config.json", R"({"split_special_tokens": true})");
                 load_tokenizer(folder.path());
               }),
               {"tokenizer_config.json", "split_special_tokens", "want false"});
}

TEST(TokenizerFiles, WarnsAboutAddedTokenIdMismatch) {
  expect_words(warnings("\"id\":267", "\"id\":270"), {"added_tokens[0]", "270", "267"});
}

TEST(TokenizerFiles, UnknownTokenWithoutIdThrowsOnUse) {
  const TemporaryFolder folder;
  trained()->save(folder.path());
  std::string text = read_text(folder / "tokenizer.json");
  text = replaced(text, "\"unk_token\":null", "\"unk_token\":\"<unk>\"");
  folder.write("tokenizer.json", replaced(text, "\"!\":0,", "\"!!\":0,"));
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode(kText), trained()->encode(kText));
  expect_words(message_of<DataError>([&] { tokenizer->encode("a!"); }), {"21", "<unk>"});
}

TEST(TokenizerFiles, OmitsTextWithoutTokenAndWarnsOnce) {
  const TemporaryFolder folder;
  trained()->save(folder.path());
  folder.write("tokenizer.json",
               replaced(read_text(folder / "tokenizer.json"), "\"!\":0,", "\"!!\":0,"));
  const auto tokenizer = load_tokenizer(folder.path());
  std::ostringstream said;
  send_warnings_to(&said);
  std::vector<std::int32_t> wanted = trained()->encode("the");
  for (const std::int32_t id : trained()->encode(" cat")) wanted.push_back(id);
  EXPECT_EQ(tokenizer->encode("the!! cat!"), wanted);
  send_warnings_to(&std::cerr);
  expect_words(said.str(), {"warning: tokenizer.json: omits", "no token"});
  EXPECT_EQ(said.str().find('\n'), said.str().size() - 1);
}

TEST(TokenizerFiles, ReadsAddedTokensFromConfig) {
  const TemporaryFolder folder;
  trained()->save(folder.path());
  const auto with = [&](const std::string& config) {
    folder.write("tokenizer_config.json", config);
    return load_tokenizer(folder.path());
  };
  using Ids = std::vector<std::int32_t>;
  const std::string text = "the <extra><|endoftext|>";
  const Ids the = trained()->encode("the ");
  const auto ids = [&](const std::string& config, ControlText control) {
    Ids found = with(config)->encode(text, control);
    EXPECT_TRUE(std::equal(the.begin(), the.end(), found.begin())) << config;
    return Ids(found.begin() + static_cast<std::ptrdiff_t>(the.size()), found.end());
  };
  const std::string plain = R"({"added_tokens_decoder": {"268": {"content": "<extra>",
      "lstrip": false, "normalized": false, "rstrip": false, "single_word": false,
      "special": false}}})";
  EXPECT_EQ(ids(plain, ControlText::kAsTokens), (Ids{268, 267}));
  EXPECT_EQ(ids(plain, ControlText::kAsText).front(), 268);  // it is not a special token
  EXPECT_EQ(with(plain)->decode(Ids{268}), "<extra>");
  EXPECT_EQ(with(plain)->min_table_rows(), 269);
  const std::string special = R"({"added_tokens_decoder": {"268": {"content": "<extra>",
      "special": true}}})";
  EXPECT_EQ(ids(special, ControlText::kAsTokens), (Ids{268, 267}));
  EXPECT_NE(ids(special, ControlText::kAsText).front(), 268);
  EXPECT_EQ(with(special)->min_table_rows(), trained()->min_table_rows());
  for (const char* named :
       {R"({"pad_token": "<extra>"})", R"({"extra_special_tokens": ["<extra>"]})",
        R"({"additional_special_tokens": [{"content": "<extra>"}]})",
        R"({"extra_special_tokens": {"image_token": "<extra>"}})"})
    EXPECT_EQ(ids(named, ControlText::kAsTokens), (Ids{268, 267})) << named;
  // The config's flags take precedence.
  const std::string strips = R"({"added_tokens_decoder": {"267": {"content": "<|endoftext|>",
      "lstrip": true, "special": true}}})";
  EXPECT_EQ(with(strips)->encode("a <|endoftext|>", ControlText::kAsTokens).size(), 2u);
  for (const char* damaged : {R"({"added_tokens_decoder": {"x": {"content": "<extra>"}}})",
                              R"({"added_tokens_decoder": {"268": {"special": true}}})",
                              R"({"added_tokens_decoder": [1]})"})
    expect_words(message_of<DataError>([&] { with(damaged); }),
                 {"tokenizer_config.json", "added_tokens_decoder"});
}

TEST(TokenizerFiles, RejectsMalformedJson) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& text) {
    const auto file = folder.write("tokenizer.json", text);
    return message_of<DataError>([&] { load_tokenizer(file); });
  };
  expect_words(message(""), {"not valid JSON"});
  expect_words(message("[1]"), {"want {"});
  expect_words(message("{\"type\":\"characters\",\"code_points\":[3,2],\"bytes\":[]}"),
               {"code_points"});
  expect_words(message("{\"type\":\"words\"}"), {"words"});
  expect_words(message("{\"a\":" + std::string(100000, '[')), {"not valid JSON"});
  expect_words(message("{\"type\":\"bytes\"} x"), {"not valid JSON"});
}

/// Errors name the path of a value, which contains the long key, and quote the value.
TEST(TokenizerFiles, ErrorsShortenLongKeysAndValues) {
  const std::string key(1 << 20, 'k');
  const std::string message =
      refusal("\"post_processor\":null",
              concat("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                     "\"SpecialToken\":{\"id\":\"",
                     key, "\"}}],\"special_tokens\":{\"", key, "\":{\"ids\":[[\"", key, "\"]]}}}"));
  expect_words(message, {"post_processor.special_tokens.kkk", ".ids[0] is [\"kkk", "…"});
  EXPECT_LT(message.size(), 1000u);
}

TEST(TokenizerFiles, ReportsMissingFiles) {
  const TemporaryFolder folder;
  expect_words(message_of<MissingInput>([&] { load_tokenizer(folder / "nowhere"); }), {"nowhere"});
  expect_words(message_of<MissingInput>([&] { load_tokenizer(folder.path()); }),
               {"tokenizer.json", "vocab.json"});
}

}  // namespace
}  // namespace hybrid_trainer
