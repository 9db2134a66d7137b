#include "src/data/examples/text_rows.h"

#include "hybrid_trainer/core/batch.h"
#include "src/core/messages.h"
#include "tests/data/examples/rows_fixture.h"

namespace hybrid_trainer {
namespace {

class TextRowsTest : public RowsFixture {
 protected:
  TextRowsTest() { send_warnings_to(&warnings_); }
  ~TextRowsTest() override { send_warnings_to(&std::cerr); }

  TextFormat format(TextTask task) const {
    return {.task = task, .tokenizer = *tokenizer_, .chat = &chat_};
  }
  TextRows read(const std::string& content, const TextFormat& format,
                const std::string& name = "rows.jsonl") const {
    return read_text_rows(folder_.write(name, content), format);
  }
  TextRows read(TextTask task, const std::string& content) const {
    return read(content, format(task));
  }
  /// The texts of a row, separated by bars.
  std::string texts(const TextRow& row) const {
    std::string text;
    std::size_t text_index = 0;
    for (std::size_t i = 0; i < row.tokens.size(); ++i) {
      if (std::ssize(text) > 0 && static_cast<std::int64_t>(i) == row.ends[text_index]) {
        text += " | ";
        ++text_index;
      }
      text += tokenizer_->token_bytes(row.tokens[i]);
    }
    return text;
  }
  std::vector<std::string> all_texts(TextTask task, const std::string& content) const {
    return all_texts(read(task, content));
  }
  std::vector<std::string> all_texts(const TextRows& rows) const {
    std::vector<std::string> all;
    for (const TextRow& row : rows.rows) all.push_back(texts(row));
    EXPECT_TRUE(rows.refused.empty()) << rows.refused.front().reason;
    return all;
  }
  /// The reason why the file's only row is rejected.
  std::string reason(const std::string& row, const TextFormat& format) const {
    const TextRows rows = read(row + "\n", format);
    EXPECT_TRUE(rows.rows.empty()) << row;
    return rows.refused.size() == 1 ? rows.refused.front().reason : "";
  }
  std::string reason(TextTask task, const std::string& row) const {
    return reason(row, format(task));
  }

  std::ostringstream warnings_;
};

using Texts = std::vector<std::string>;

TEST_F(TextRowsTest, ClassifyReadsTextsAndPairs) {
  const TextRows rows = read(TextTask::kClassify, R"({"text": "one", "label": "b"}
{"text": "two", "text_pair": " three", "label": "a"}

{"sentence1": "four", "sentence2": " five", "label": "b"}
{"premise": "six", "hypothesis": " seven", "label": "a"}
{"sentence": "eight", "label": "b"})");
  EXPECT_EQ(all_texts(rows), (Texts{"one", "two three", "four five", "six seven", "eight"}));
  EXPECT_EQ(rows.class_names, (Texts{"a", "b"}));
  EXPECT_EQ(rows.label_kind, LabelKind::kSingle);
  EXPECT_EQ(rows.rows[0].class_index, 1);
  EXPECT_EQ(rows.rows[1].class_index, 0);
  EXPECT_EQ(rows.rows[2].line, 4);
  EXPECT_EQ(rows.rows[0].ends.size(), 1u);
  EXPECT_EQ(rows.rows[1].types.size(), rows.rows[1].tokens.size());
  EXPECT_EQ(rows.rows[1].types.back(), 1);
  EXPECT_EQ(rows.labels(), 0);
  EXPECT_EQ(warnings_.str(), "");
}

TEST_F(TextRowsTest, ClassifyReadsJsonAndCsvWithRenamedColumns) {
  TextFormat renamed = format(TextTask::kClassify);
  renamed.columns = ColumnNames("text=review,label=stars");
  for (const auto& [name, content] : std::vector<std::pair<const char*, const char*>>{
           {"a.json", R"([{"review": "good", "stars": 5}, {"review": "bad", "stars": 1}])"},
           {"a.csv", "review,stars\ngood,5\nbad,1\n"}}) {
    const TextRows rows = read(content, renamed, name);
    EXPECT_EQ(all_texts(rows), (Texts{"good", "bad"})) << name;
    EXPECT_EQ(rows.class_names, (Texts{"1", "5"})) << name;
    EXPECT_EQ(rows.rows[0].class_index, 1) << name;
  }
  const TextRows several = read("text,label\none,\"[\"\"a\"\",\"\"b\"\"]\"\ntwo,\"[\"\"b\"\"]\"\n",
                                format(TextTask::kClassify), "b.csv");
  EXPECT_EQ(several.label_kind, LabelKind::kSeveral);
  EXPECT_EQ(several.rows.at(1).labels, (std::vector<float>{0, 1}));
  EXPECT_EQ(several.labels(), 2);
}

/// As pandas reads them.
TEST_F(TextRowsTest, ReadsTablesWrittenOnWindows) {
  const Texts wanted{"one, \"two\"\nthree", "four\tfive"};
  for (const auto& [name, separator] : {std::pair("rows.csv", ","), {"rows.tsv", "\t"}}) {
    const TextRows rows =
        read(concat("\xEF\xBB\xBF\"text\"", separator, "label\r\n\"one, \"\"two\"\"\nthree\"",
                    separator, "1\r\n\"four\tfive\"", separator, "0.0\r\n\r\n"),
             format(TextTask::kClassify), name);
    EXPECT_EQ(all_texts(rows), wanted) << name;
    EXPECT_EQ(rows.class_names, (Texts{"0.0", "1"})) << name;
  }
  const TextRows lines = read(
      "\xEF\xBB\xBF{\"text\": \"one\", \"label\": \"a\"}\r\n{\"text\": \"two\\r\\nthree\", "
      "\"label\": \"b\"}\r\n",
      format(TextTask::kClassify));
  EXPECT_EQ(all_texts(lines), (Texts{"one", "two\r\nthree"}));
}

TEST_F(TextRowsTest, ClassifyRejectsInvalidLabelsByLine) {
  const TextRows rows = read(TextTask::kClassify, R"({"text": "one", "label": "b"}
{"text": "two", "label": 3}
{"text": 4}
{"text": "four", "label": ["a"]}
{"text": "five", "label": "a"})");
  EXPECT_EQ(rows.rows.size(), 2u);
  ASSERT_EQ(rows.refused.size(), 3u);
  EXPECT_EQ(rows.refused[0].line, 2);
  expect_words(rows.refused[0].reason, {"the label is 3", "names"});
  EXPECT_EQ(rows.refused[1].line, 3);
  EXPECT_EQ(rows.refused[2].line, 4);
  EXPECT_EQ(rows.rows[1].class_index, 0);
}

TEST_F(TextRowsTest, ClassifyUsesModelsClasses) {
  TextFormat known = format(TextTask::kClassify);
  known.class_names = {"neg", "pos"};
  const TextRows rows = read(R"({"text": "one", "label": 1}
{"text": "two", "label": "other"})",
                             known);
  ASSERT_EQ(rows.rows.size(), 1u) << "one class is enough if the model knows others";
  EXPECT_EQ(rows.rows[0].class_index, 1);
  expect_words(rows.refused.at(0).reason, {"\"other\" is not a class"});
}

TEST_F(TextRowsTest, ClassifyRejectsFileOfOneClass) {
  try {
    read(TextTask::kClassify, "{\"text\": \"a\", \"label\": 7}\n{\"text\": \"b\", \"label\": 7}");
    FAIL();
  } catch (const DataError& error) {
    expect_words(error.what(), {"rows.jsonl", "the class \"7\"", "at least 2 classes"});
  }
  const auto message = message_of<DataError>(
      [&] { read("text,label\na,x\ncaf\xE9,y\nb,x\n", format(TextTask::kClassify), "rows.csv"); });
  expect_words(message, {"the class \"x\"", "refused 1 row", "row 2", "not UTF-8"});
}

TEST_F(TextRowsTest, PredictionAcceptsRowsWithoutLabels) {
  for (const TextTask task :
       {TextTask::kClassify, TextTask::kEmbed, TextTask::kRank, TextTask::kReward}) {
    TextFormat predict = format(task);
    predict.needs_labels = false;
    const TextRows rows =
        read(task == TextTask::kRank ? R"({"query": "a", "passage": " b"})" : R"({"text": "a b"})",
             predict);
    ASSERT_EQ(rows.rows.size(), 1u) << name_of(task);
    EXPECT_EQ(rows.rows[0].ends.size(), 1u) << name_of(task);
    EXPECT_TRUE(texts(rows.rows[0]).starts_with("a b")) << name_of(task);
    EXPECT_EQ(rows.rows[0].class_index, std::nullopt);
    EXPECT_EQ(rows.labels(), 0);
  }
}

TEST_F(TextRowsTest, EmbedReadsTextsByRoleWithPrompts) {
  TextFormat prompted = format(TextTask::kEmbed);
  prompted.prompts = {"q: ", "p: "};
  EXPECT_EQ(all_texts(read(R"({"query": "a", "positive": "b"})", prompted)), Texts{"q: a | p: b"});
  EXPECT_EQ(
      all_texts(read(R"({"anchor": "a", "positive": "b", "negative_1": "c", "negative_2": "d"})",
                     prompted)),
      Texts{"q: a | p: b | p: c | p: d"});
  EXPECT_EQ(all_texts(TextTask::kEmbed, R"({"question": "a", "answer": "b", "negative": "c"}
{"anchor": "a", "positive": "b", "negatives": ["c", "d"]})"),
            (Texts{"a | b | c", "a | b | c | d"}));
}

TEST_F(TextRowsTest, EmbedReadsScores) {
  TextFormat cosine = format(TextTask::kEmbed);
  cosine.scores = {-1, 1};
  const TextRows rows = read(R"({"sentence1": "a", "sentence2": "b", "score": 0.5}
{"a": "c", "b": "d", "label": -1}
{"a": "c", "b": "d", "score": 5}
{"a": "c", "b": "d"})",
                             cosine);
  ASSERT_EQ(rows.rows.size(), 2u);
  EXPECT_EQ(rows.labels(), 1);
  EXPECT_EQ(rows.rows[0].labels, std::vector<float>{0.5});
  EXPECT_EQ(rows.rows[1].labels, std::vector<float>{-1});
  ASSERT_EQ(rows.refused.size(), 2u);
  expect_words(rows.refused[0].reason, {"is 5; want a number from -1 to 1"});
  expect_words(rows.refused[1].reason, {"no \"score\""});
}

TEST_F(TextRowsTest, RankReadsPairsAndLists) {
  const TextRows rows = read(TextTask::kRank, R"({"query": "a", "passage": " b", "label": 1}
{"query": "c", "passages": [" d", " e"], "labels": [0, 0.5]}
{"query": "c", "passages": [" d", " e"], "scores": [1]}
{"query": "c", "passages": [" d", 5], "scores": [1, 0]})");
  ASSERT_EQ(rows.rows.size(), 3u);
  EXPECT_EQ(texts(rows.rows[2]), "c e");
  EXPECT_EQ(rows.rows[2].labels, std::vector<float>{0.5});
  EXPECT_EQ(rows.rows[2].line, 2);
  ASSERT_EQ(rows.refused.size(), 2u);
  expect_words(rows.refused[0].reason, {"2 passages and 1 labels"});
  expect_words(rows.refused[1].reason, {"\"passages\" is 5; want a string"});
}

TEST_F(TextRowsTest, RewardRendersPreferences) {
  const TextRows rows =
      read(TextTask::kReward, R"({"prompt": "The cat", "chosen": " sat", "rejected": " flew"}
{"prompt": [{"role": "user", "content": "Hi"}], "chosen": [{"role": "assistant", "content": "Yes"}],)"
                              R"( "rejected": [{"role": "assistant", "content": "No"}]})");
  EXPECT_EQ(all_texts(rows), (Texts{"The cat sat<|endoftext|> | The cat flew<|endoftext|>",
                                    "<user>Hi<|endoftext|><assistant>Yes<|endoftext|> | "
                                    "<user>Hi<|endoftext|><assistant>No<|endoftext|>"}));
  expect_words(reason(TextTask::kReward, R"({"prompt": "a", "chosen": "b"})"),
               {"\"rejected\" is missing"});
  expect_words(reason(TextTask::kReward, R"({"prompt": "a", "chosen": "b", "rejected": "b"})"),
               {"equal"});
}

TEST_F(TextRowsTest, NotesTruncatedTexts) {
  TextFormat narrow = format(TextTask::kClassify);
  narrow.longest = 2;
  const std::string content = R"({"text": "0 1 2 3 4 5", "label": "a"}
{"text": "0", "label": "b"})";
  const TextRows rows = read(content, narrow);
  EXPECT_EQ(rows.rows.at(0).tokens.size(), 2u);
  ASSERT_EQ(rows.notes.size(), 1u);
  expect_words(rows.notes[0], {"1 text is longer than 2 tokens and lost"});
  EXPECT_TRUE(read(TextTask::kClassify, content).notes.empty());
}

TEST_F(TextRowsTest, EnclosesAndTruncatesTextsInTemplate) {
  const std::unique_ptr<Tokenizer> encoder = load_tokenizer(folder_.write("tokenizer.json", R"({
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100,
              "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "b": 4, "c": 5, "d": 6}},
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                   "strip_accents": null, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
    "added_tokens": []})"));
  const auto read_with = [&](TextTask task, const char* row) {
    TextFormat format{.task = task, .tokenizer = *encoder, .longest = 6, .chat = &chat_};
    format.class_names = {"no", "yes"};
    return read(row, format);
  };
  using Ids = std::vector<std::int32_t>;
  const TextRows pair =
      read_with(TextTask::kClassify, R"({"text": "A b c", "text_pair": "d", "label": "yes"})");
  EXPECT_EQ(pair.rows.at(0).tokens, (Ids{1, 3, 4, 2, 6, 2}));
  EXPECT_EQ(pair.rows.at(0).types, (Ids{0, 0, 0, 0, 1, 1}));
  expect_words(pair.notes.at(0), {"longer than 6 tokens and lost 1 token at its end"});
  const TextRows roles = read_with(TextTask::kEmbed, R"({"anchor": "a", "positive": "b"})");
  EXPECT_EQ(roles.rows.at(0).tokens, (Ids{1, 3, 2, 1, 4, 2}));
  EXPECT_EQ(roles.rows.at(0).ends, (std::vector<std::int64_t>{3, 6}));
  const TextRows answers =
      read_with(TextTask::kReward, R"({"prompt": "a", "chosen": " b c d a b", "rejected": " c"})");
  EXPECT_EQ(answers.rows.at(0).tokens, (Ids{1, 3, 4, 5, 6, 2, 1, 3, 5, 2})) << "ends with [SEP]";
  EXPECT_EQ(answers.rows.at(0).ends, (std::vector<std::int64_t>{6, 10}));
}

TEST_F(TextRowsTest, RejectsTextsThatDoNotFitSequence) {
  TextFormat narrow = format(TextTask::kEmbed);
  narrow.sequence_length = 24;
  narrow.longest = 20;
  expect_words(reason(R"({"anchor": "a", "positive": "b", "negatives": ["c", "d"]})", narrow),
               {"4 texts", "24 tokens has room for 3", "data.sequence_length"});
  const std::string long_text = "0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9";
  expect_words(
      reason(concat(R"({"anchor": ")", long_text, R"(", "positive": ")", long_text, "\"}"), narrow),
      {"2 texts have 40 tokens", "a sequence has 24"});
}

TEST_F(TextRowsTest, ReportsReasonForRejectedRow) {
  const auto of = [&](const char* row) { return reason(TextTask::kClassify, row); };
  expect_words(of(R"({"text": 5, "label": "a"})"), {"\"text\" is 5; want a string"});
  expect_words(of(R"({"text": " ", "label": "a"})"), {"\"text\" is empty"});
  expect_words(of(R"({"text": "a"})"), {"no \"label\"", "want {\"text\""});
  expect_words(of(R"({"text": "a", "label": 1, "score": 2})"), {"two labels", "--columns score="});
  expect_words(of(R"({"text": "a", "premise": "b", "hypothesis": "c", "label": 1})"),
               {"two shapes", "\"premise\""});
  expect_words(of(R"({"prompt": "a", "chosen": "b", "rejected": "c"})"), {"fit --task reward"});
  expect_words(of(R"({"anchor": "a", "positive": "b"})"), {"fit --task embed"});
  expect_words(of(R"({"messages": [{"role": "user", "content": "a"}]})"),
               {"fit a language model, without --task"});
  expect_words(of(R"({"text": null, "label": "a"})"), {"the keys \"text\" (null), \"label\";"});
  expect_words(of(R"({"review": "a"})"), {"the keys \"review\"; want {\"text\""});
  expect_words(reason(TextTask::kReward, R"({"text": "a", "label": 1})"), {"fit --task classify"});
  expect_words(reason(TextTask::kEmbed, R"({"a": "a", "b": "b", "negative": "c", "score": 1})"),
               {"a score and 3 texts"});
  expect_words(reason(TextTask::kRank, R"({"query": "a", "passage": "b", "score": "high"})"),
               {"\"score\" is \"high\"; want a number"});
}

TEST_F(TextRowsTest, WarnsAboutUnusedKeysAndVocabulary) {
  EXPECT_EQ(read(TextTask::kClassify, R"({"text": "a", "label": 1, "id": 5}
{"text": "b", "label": 2})")
                .rows.size(),
            2u);
  expect_words(warnings_.str(), {"no effect", "\"id\""});
  TextFormat small = format(TextTask::kEmbed);
  small.vocabulary = 2;
  expect_words(reason(R"({"anchor": "zebra", "positive": "b"})", small),
               {"outside the model's vocabulary of 2"});
}

}  // namespace
}  // namespace hybrid_trainer
