#include "src/data/examples/example_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "tests/data/examples/rows_fixture.h"

namespace hybrid_trainer {
namespace {

using ExampleRowsTest = RowsFixture;

TEST_F(ExampleRowsTest, TextTrainsOnAllButFirstToken) {
  EXPECT_EQ(only_row(R"({"text": "0ab"})"), "0[ab<|endoftext|>]");
  EXPECT_EQ(only_row(R"({"text": "0ab<|endoftext|>"})"), "0[ab<|endoftext|>]");
}

TEST_F(ExampleRowsTest, PromptRowTrainsOnlyOnCompletion) {
  EXPECT_EQ(only_row(R"({"prompt": "Q: 1\n", "completion": "A: 2"})"), "Q: 1\n[A: 2<|endoftext|>]");
}

TEST_F(ExampleRowsTest, TextsStartWithOneBosToken) {
  tokenizer_ = load_tokenizer(HT_TEST_DATA_DIR "/tokenizers/llama3.json");
  chat_.special_tokens = {{"eos_token", "<|end_of_text|>"}};
  EXPECT_EQ(only_row(R"({"text": "0"})"), "<|begin_of_text|>[0<|end_of_text|>]");
  EXPECT_EQ(only_row(R"({"text": "<|begin_of_text|>0"})"), "<|begin_of_text|>[0<|end_of_text|>]");
  EXPECT_EQ(only_row(R"({"prompt": "1:", "completion": "2"})"),
            "<|begin_of_text|>1:[2<|end_of_text|>]");
}

TEST_F(ExampleRowsTest, SpecialTokensInTextCanBePlainText) {
  const std::string line = R"({"prompt": "a<|endoftext|>", "completion": "b<|endoftext|>"})";
  const auto tokens = [&] { return read(line + "\n").rows.at(0).tokens; };
  const std::int32_t end = *tokenizer_->end_of_text();
  EXPECT_EQ(std::ranges::count(tokens(), end), 2);
  control_ = ControlText::kAsText;
  EXPECT_EQ(std::ranges::count(tokens(), end), 1);
  EXPECT_EQ(tokens().back(), end);
  EXPECT_EQ(tokenizer_->decode(tokens()), "a<|endoftext|>b<|endoftext|><|endoftext|>");
  EXPECT_EQ(only_row(R"({"messages": [{"role": "user", "content": "a"}, )"
                     R"({"role": "assistant", "content": "b"}]})"),
            "<user>a<|endoftext|><assistant>[b<|endoftext|>]");
}

TEST_F(ExampleRowsTest, MessagesTrainOnAssistantTurns) {
  EXPECT_EQ(only_row(R"({"messages": [{"role": "user", "content": "a"}, )"
                     R"({"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, )"
                     R"({"role": "assistant", "content": "d"}]})"),
            "<user>a<|endoftext|><assistant>[b<|endoftext|>]<user>c<|endoftext|><assistant>"
            "[d<|endoftext|>]");
  EXPECT_EQ(only_row(R"({"prompt": [{"role": "user", "content": "a"}], )"
                     R"("completion": [{"role": "assistant", "content": "b"}]})"),
            "<user>a<|endoftext|><assistant>[b<|endoftext|>]");
}

TEST_F(ExampleRowsTest, GenerationBlocksSelectTargets) {
  set_template(
      "{% for m in messages %}{{ '<' ~ m.role ~ '>' }}{% if m.role == 'assistant' %}"
      "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}"
      "<|endoftext|>{% endfor %}");
  EXPECT_EQ(only_row(R"({"messages": [{"role": "user", "content": "a"}, )"
                     R"({"role": "assistant", "content": "b"}]})"),
            "<user>a<|endoftext|><assistant>[b]<|endoftext|>");
}

TEST_F(ExampleRowsTest, ToolsAndTemplateKwargsReachTemplate) {
  set_template(
      "{{ tools[0].x }}{{ style }}|{% for m in messages %}{{ m.thinking }}{{ m.content }}"
      "{% endfor %}{% if not add_generation_prompt %}.{% endif %}");
  EXPECT_EQ(only_row(R"({"messages": [{"role": "assistant", "content": "b", "reasoning": "r"}], )"
                     R"("tools": [{"x": 1}], "chat_template_kwargs": {"style": "s"}})"),
            "1s|[rb.]");
}

TEST_F(ExampleRowsTest, RejectsInvalidLinesByNumber) {
  const ExampleRows examples = read(
      "{\"text\": \"good\"}\n\n{\"text\": [5]}\n[1]\n{broken\n{\"prompt\": \"a\"}\r\n"
      "{\"messages\": []}\n{\"messages\": [{\"content\": \"a\"}]}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n{\"text\": \"last\"}");
  ASSERT_EQ(examples.rows.size(), 2u);
  EXPECT_EQ(examples.rows[0].line, 1);
  EXPECT_EQ(examples.rows[1].line, 10);
  const char* const words[] = {"text",     "object", "JSON",  "completion",
                               "messages", "role",   "target"};
  ASSERT_EQ(examples.refused.size(), std::size(words));
  for (std::size_t i = 0; i < std::size(words); ++i) {
    EXPECT_EQ(examples.refused[i].line, static_cast<std::int64_t>(i) + 3);
    expect_words(examples.refused[i].reason, {words[i]});
  }
}

TEST_F(ExampleRowsTest, RejectsPromptThatIsNotTokenPrefix) {
  expect_words(only_reason(R"({"prompt": "i", "completion": "ng"})"), {"prompt", "begin"});
  set_template("{{ raise_exception('never') }}");
  expect_words(only_reason(R"({"messages": [{"role": "user", "content": "a"}]})"), {"never"});
}

TEST_F(ExampleRowsTest, SeparatingSpaceMustBeginCompletion) {
  const ExampleRows examples = read(
      "{\"prompt\": \"the \", \"completion\": \"the\"}\n"
      "{\"prompt\": \"the\", \"completion\": \" the\"}");
  ASSERT_EQ(examples.rows.size(), 1u);
  EXPECT_EQ(examples.rows[0].line, 2);
  ASSERT_EQ(examples.refused.size(), 1u);
  EXPECT_NE(examples.refused[0].reason.find("begin the completion with a space"),
            std::string::npos);
}

TEST_F(ExampleRowsTest, TruncationKeepsStartAndRequiresTarget) {
  const ExampleRows examples = read(R"({"prompt": "0", "completion": "1\n2\n3\n4"})", 4);
  ASSERT_EQ(examples.rows.size(), 1u);
  EXPECT_EQ(shown(examples.rows[0]), "0[1\n2]");
  EXPECT_EQ(examples.rows[0].left_out, 5);
  EXPECT_EQ(examples.rows[0].targets(), 3);
  expect_words(only_reason(R"({"prompt": "0\n1\n2", "completion": "3"})", 4), {"token", "4"});
}

TEST_F(ExampleRowsTest, ReportsOmittedAnswersOnce) {
  set_template(
      "{% for m in messages %}{% if m.content != 'drop' %}<{{ m.role }}>{{ m.content }}"
      "<|endoftext|>{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  const std::string turns = R"({"messages": [{"role": "user", "content": "a", "images": [1]}, )"
                            R"({"role": "assistant", "content": "drop"}, )"
                            R"({"role": "assistant", "content": "b"}], "images": ["x.png"]})";
  const ExampleRows examples = read(turns + "\n" + turns + "\n");
  ASSERT_EQ(examples.rows.size(), 2u);
  EXPECT_EQ(shown(examples.rows[0]), "<user>a<|endoftext|><assistant>[b<|endoftext|>]");
  const std::vector<std::string> notes = examples.notes();
  ASSERT_EQ(notes.size(), 2u);
  expect_words(notes[0], {"2 answers", "2 rows", "template"});
  expect_words(notes[1], {"not used in training", "\"images\" (2 rows)", "\"images\" of messages"});
  EXPECT_TRUE(read("{\"text\": \"0\"}").notes().empty());
}

TEST_F(ExampleRowsTest, ReportsUnusedMembersOnce) {
  const std::string chat = R"("messages": [{"role": "user", "content": "a", "name": "n"}, )"
                           R"({"role": "assistant", "content": "b"}])";
  const ExampleRows rows =
      read(concat("{", chat, R"(, "id": 1, "rejected": "r", "documents": ["d"], "source": ""})",
                  "\n", "{", chat, R"(, "id": 2, "chat_template_kwargs": {"style": "s"}})"));
  ASSERT_EQ(rows.rows.size(), 2u);
  const std::vector<std::string> notes = rows.notes();
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0],
            R"(not used in training: "id" (2 rows), "rejected" (1 row), "name" of messages)");
  expect_words(notes[1], {"\"documents\" (1 time)", "\"style\" (1 time)"});
  set_template(concat("{{ documents }}{{ style }}", kChat));
  EXPECT_EQ(read(concat("{", chat, R"(, "documents": ["d"]})")).notes().size(), 1u);
}

TEST_F(ExampleRowsTest, ReportsRolesDroppedByTemplate) {
  set_template(
      "{% for m in messages %}{% if m.role in ['user', 'assistant', 'tool'] %}<{{ m.role }}>"
      "{{ m.content | tojson if m.role == 'tool' else m.content }}<|endoftext|>{% endif %}"
      "{% endfor %}");
  const ExampleRows rows = read(
      R"({"messages": [{"role": "customer", "content": "a"}, {"role": "assistant", "content": "b"},)"
      R"( {"role": "tool", "content": "\"c\"\n"}, {"role": "assistant", "content": "d"}]})");
  ASSERT_EQ(rows.rows.size(), 1u);
  ASSERT_EQ(rows.notes().size(), 1u);
  expect_words(rows.notes()[0], {"leaves out", "\"content of customer\" (1 time)"});
  expect_words(only_reason(R"({"messages": [{"role": "user", "content": "a"},)"
                           R"( {"role": "critic", "content": "b"}]})"),
               {"target", "\"critic\", \"user\"", "need the role \"assistant\""});
}

TEST_F(ExampleRowsTest, NotesPlainTextDespiteChatTemplate) {
  ASSERT_EQ(read(R"({"prompt": "a", "completion": "b"})").notes().size(), 1u);
  expect_words(read(R"({"prompt": "a", "completion": "b"})").notes()[0],
               {"1 text", "plain text", "--columns instruction=prompt,output=completion"});
  for (const char* row : {R"({"text": "ab"})", R"({"prompt": "<|endoftext|>a", "completion": "b"})",
                          R"({"instruction": "a", "output": "b"})"})
    EXPECT_TRUE(read(row).notes().empty()) << row;
  expect_words(only_reason(R"({"question": "a", "answer": "b"})"),
               {"--columns instruction=KEY,output=KEY"});
  chat_.chat_template.reset();
  EXPECT_TRUE(read(R"({"prompt": "a", "completion": "b"})").notes().empty());
  expect_words(only_reason(R"({"question": "a", "answer": "b"})"),
               {"--columns prompt=KEY,completion=KEY"});
}

TEST_F(ExampleRowsTest, ReportsFileWithMostlyInvalidLines) {
  const std::string good = "{\"text\": \"0a\"}\n", bad = "{\"text\": \"\xE4\"}\n";
  EXPECT_EQ(read(good + bad).mostly_rejected_warning(), "");
  expect_words(read(good + bad + bad).mostly_rejected_warning(),
               {"2 of 3 lines are refused", "line 2: it is not UTF-8", "iconv"});
  expect_words(read(bad).mostly_rejected_warning(), {"every line is refused", "line 1"});
}

TEST_F(ExampleRowsTest, ErrorsNameMissingOrEmptyFile) {
  message_of<MissingInput>(
      [&] { read_example_rows(folder_ / "no.jsonl", {.tokenizer = *tokenizer_, .chat = chat_}); });
  expect_words(message_of<DataError>([&] { read("\n\n"); }), {"examples.jsonl", "no examples"});
  chat_.chat_template.reset();
  expect_words(only_reason(R"({"messages": [{"role": "user", "content": "a"}]})"),
               {"chat template"});
}

TEST_F(ExampleRowsTest, ReadsRowsOfJsonArray) {
  const ExampleRows rows =
      read("\xEF\xBB\xBF [{\"text\": \"0],[\\\"a\"},\n{\"text\": \"0b\"}\n]\n");
  ASSERT_EQ(rows.rows.size(), 2u);
  EXPECT_EQ(shown(rows.rows[0]), "0[],[\"a<|endoftext|>]");
  EXPECT_EQ(shown(rows.rows[1]), "0[b<|endoftext|>]");
  EXPECT_EQ(rows.rows[1].line, 2);
  EXPECT_EQ(rows.files.at(0).form.container, RowContainer::kJsonArray);
  EXPECT_EQ(read("{\"text\": \"0a\"}").files.at(0).form.container, RowContainer::kJsonLines);
}

TEST_F(ExampleRowsTest, RejectsInvalidArrayElementsByPosition) {
  const ExampleRows rows = read(R"([{"text": "0a"}, {"text": "0b"} {}, {"text": "0c"}])");
  ASSERT_EQ(rows.rows.size(), 2u);
  ASSERT_EQ(rows.refused.size(), 1u) << "the item after the missing comma";
  EXPECT_EQ(rows.refused[0].line, 2);
  for (const char* broken : {"[]", R"([{"text": "0a"})", R"([{"text": "0a"}] {"text": "0b"})",
                             R"([{"text": "0a"}, ])", R"([{"text": "0a"}, , {"text": "0b"}])"})
    EXPECT_THROW(read(broken), DataError) << broken;
}

TEST_F(ExampleRowsTest, RowsMaySpanSeveralLines) {
  const ExampleRows rows =
      read("\n{\n  \"text\": \"0a\"\n}\n{\n\"text\": \"0{\"\n}\n{\"text\": [1]}");
  ASSERT_EQ(rows.rows.size(), 2u);
  EXPECT_EQ(rows.rows[0].line, 2);
  EXPECT_EQ(rows.rows[1].line, 5);
  EXPECT_EQ(shown(rows.rows[1]), "0[{<|endoftext|>]");
  ASSERT_EQ(rows.refused.size(), 1u);
  EXPECT_EQ(rows.refused[0].line, 8);
  // A truncated line does not invalidate other lines.
  EXPECT_EQ(read("{\"text\": \"0a\n{\"text\": \"0b\"}\n").rows.size(), 1u);
  EXPECT_EQ(read("{\"text\": {\n{\"text\": \"0b\"}\n").rows.size(), 1u);
}

TEST_F(ExampleRowsTest, ReadsSingleListInsideObject) {
  for (const char* wrapped :
       {R"({"version": "1", "data": [{"text": "0a"}, {"text": "0,]b"}]})",
        "{\n \"train\": [\n  {\"text\": \"0a\"},\n  {\"text\": \"0,]b\"}\n ],\n \"n\": [1]\n}\n"}) {
    const ExampleRows rows = read(wrapped);
    ASSERT_EQ(rows.rows.size(), 2u) << wrapped;
    EXPECT_EQ(shown(rows.rows[1]), "0[,]b<|endoftext|>]");
    EXPECT_EQ(rows.rows[1].line, 2);
    EXPECT_EQ(rows.files.at(0).form.container, RowContainer::kJsonArray);
  }
  EXPECT_EQ(read(R"({"data": [{"text": "0a"}]})").files.at(0).form.array_key, "\"data\"");
  const std::string several = message_of<DataError>(
      [&] { read(R"({"train": [{"text": "0a"}], "test": [{"text": "0b"}]})"); });
  expect_words(several, {"\"train\", \"test\"", "one of them", "json.load"});
  EXPECT_EQ(read(R"({"text": "0", "data": [{"text": "0a"}]})").rows.size(), 1u);
}

TEST_F(ExampleRowsTest, RejectsNanWithAdvice) {
  expect_words(only_reason(R"({"text": "0", "score": NaN})"),
               {"NaN is not valid JSON", "write null"});
}

/// Rejecting a million invalid lines one by one took 5 s.
TEST_F(ExampleRowsTest, StopsAfter100000InvalidLines) {
  std::string lines;
  for (int i = 0; i < 100'001; ++i) lines += "1\n";
  const std::string problem = message_of<DataError>([&] { read(lines); });
  EXPECT_NE(problem.find("100000 of its first 100000 lines are refused; line 1"), std::string::npos)
      << problem;
}

TEST_F(ExampleRowsTest, DetectsCsvInFileNamedJsonl) {
  const ExampleRows rows = read("prompt,completion,id\n0,\"a\nb\",\n0,,1\n");
  ASSERT_EQ(rows.rows.size(), 1u);
  EXPECT_EQ(shown(rows.rows[0]), "0[a\nb<|endoftext|>]");
  EXPECT_EQ(rows.form(), "CSV, 1 row of prompt and completion");
  ASSERT_EQ(rows.refused.size(), 1u);
  EXPECT_EQ(rows.place(0, rows.refused[0].line, false), "row 2");
}

TEST_F(ExampleRowsTest, AppliesColumnNames) {
  columns_ = ColumnNames("prompt=q,completion=a,text=");
  EXPECT_EQ(only_row(R"({"q": "0", "a": "1", "text": "2"})"), "0[1<|endoftext|>]");
  expect_words(message_of<DataError>([&] { read(R"({"question": "0", "a": "1"})"); }),
               {"no column \"q\"", "question, a"});
}

TEST_F(ExampleRowsTest, InstructionBecomesPromptOrMessages) {
  const std::string line =
      R"({"instruction": "0", "input": "1", "output": "2", "system": "s", "history": [["3", "4"]]})";
  EXPECT_EQ(only_row(line),
            "<system>s<|endoftext|><user>3<|endoftext|><assistant>[4<|endoftext|>]"
            "<user>0\n\n1<|endoftext|><assistant>[2<|endoftext|>]");
  chat_.chat_template.reset();
  EXPECT_EQ(only_row(line), "s\n3\n4\n0\n1\n[2<|endoftext|>]");
}

TEST_F(ExampleRowsTest, PreferenceRowBecomesPair) {
  const auto both = [&](const std::string& line) {
    const ExampleRows examples = read(line);
    if (examples.pairs.size() != 1 || !examples.rows.empty())
      return examples.refused.empty() ? "no pair" : examples.refused.front().reason;
    return shown(examples.pairs[0].chosen) + "|" + shown(examples.pairs[0].rejected);
  };
  const std::string texts = "0[1<|endoftext|>]|0[2<|endoftext|>]";
  EXPECT_EQ(both(R"({"prompt": "0", "chosen": "1", "rejected": "2"})"), texts);
  EXPECT_EQ(both(R"({"chosen": "01", "rejected": "02"})"), texts);
  const std::string chat =
      "<user>0<|endoftext|><assistant>[1<|endoftext|>]|<user>0<|endoftext|><assistant>[2<|"
      "endoftext|>]";
  for (const char* line :
       {R"({"instruction": "0", "input": "", "chosen": "1", "rejected": "2"})",
        R"({"prompt": "0", "chosen": [{"role": "assistant", "content": "1"}],
            "rejected": [{"role": "assistant", "content": "2"}]})",
        R"({"prompt": "0", "chosen": [{"role": "user", "content": "0"},
            {"role": "assistant", "content": "1"}], "rejected": [{"role": "user", "content": "0"},
            {"role": "assistant", "content": "2"}]})",
        R"({"conversations": [{"from": "human", "value": "0"}], "chosen": {"from": "gpt",
            "value": "1"}, "rejected": {"from": "gpt", "value": "2"}})",
        R"({"prompt": [{"role": "user", "content": "0"}], "chosen": "1", "rejected": "2"})"}) {
    std::string one_line = line;
    std::erase(one_line, '\n');
    EXPECT_EQ(both(one_line), chat) << line;
  }
  EXPECT_EQ(read(R"({"chosen": "01", "rejected": "02"})").form(),
            "JSON lines, 1 row of preference");
  expect_words(both(R"({"prompt": "0", "chosen": "1", "rejected": "1"})"), {"equal"});
  expect_words(both(R"({"prompt": "0", "chosen": "1", "rejected": []})"), {"want", "chosen"});
}

TEST_F(ExampleRowsTest, ChosenColumnsTrainOnlyOnChosenAnswer) {
  const std::string chat = "<user>0<|endoftext|><assistant>[1<|endoftext|>]";
  for (
      const std::string line :
      {R"({"conversations": [{"from": "human", "value": "0"}], "chosen": {"from": "gpt", "value": "1"}, "rejected": {"from": "gpt", "value": "2"}})",
       R"({"messages": [{"role": "user", "content": "0"}], "chosen": "1", "rejected": "2"})",
       R"({"prompt": [{"role": "user", "content": "0"}], "chosen": "1", "rejected": "2"})",
       R"({"instruction": "0", "chosen": "1", "rejected": "2"})",
       R"({"prompt": "0", "chosen": [{"role": "assistant", "content": "1"}], "rejected": [{"role": "assistant", "content": "2"}]})",
       R"({"chosen": [{"role": "user", "content": "0"}, {"role": "assistant", "content": "1"}], "rejected": [{"role": "user", "content": "0"}, {"role": "assistant", "content": "2"}]})"}) {
    columns_ = {};
    const ExampleRows pairs = read(line);
    ASSERT_EQ(pairs.pairs.size(), 1u) << line;
    columns_ = ColumnNames(pairs.pairs[0].chosen_columns);
    EXPECT_EQ(only_row(line), chat) << line;
  }
}

TEST_F(ExampleRowsTest, RejectsColumnWithoutEffect) {
  const std::string line =
      R"({"messages": [{"role": "user", "content": "0"}, {"role": "assistant", "content": "1"}], "chosen": "2"})";
  columns_ = ColumnNames("completion=chosen");
  expect_words(message_of<DataError>([&] { read(line); }), {"chosen", "completion", "no effect"});
  columns_ = ColumnNames("mesages=messages");
  expect_words(message_of<ConfigError>([&] { read(line); }), {"mesages", "did you mean messages"});
}

TEST_F(ExampleRowsTest, ErrorsNameMissingMember) {
  expect_words(only_reason(R"({"prompt": "0", "chosen": "1"})"), {"rejected", "missing"});
  expect_words(only_reason(R"({"prompt": null, "completion": "1"})"),
               {"empty values for", "prompt"});
  expect_words(only_reason(R"({"prompt": null, "completion": null, "": ""})"),
               {"it is empty", "prompt"});
  expect_words(only_reason(R"({"prompt": {"a": 1}, "completion": "1"})"), {"want a string"});
  expect_words(
      only_reason(
          R"({"messages": [{"role": "user", "content": [{"type": "text", "value": "0"}]}]})"),
      {"without \"text\"", "value"});
}

TEST_F(ExampleRowsTest, RejectsRowsWithTwoShapes) {
  expect_words(only_reason(R"({"instruction": "0", "output": "1", "text": "2"})"),
               {"two shapes", "instruction with output", "--columns text="});
  expect_words(only_reason(R"({"prompt": "0", "completion": "1", "chosen": "1", "rejected": "2"})"),
               {"two shapes", "chosen"});
}

TEST_F(ExampleRowsTest, EncoderRowsHaveSourceAndTarget) {
  const ExampleRows rows = read_example_rows(
      folder_.write("sources.jsonl",
                    "{\"prompt\": \"0123\", \"completion\": \"45\"}\n"
                    "{\"instruction\": \"0\", \"input\": \"1\", \"output\": \"2\"}\n"
                    "{\"text\": \"0\"}\n"
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"0\"}, "
                    "{\"role\": \"assistant\", \"content\": \"1\"}]}\n"),
      {.tokenizer = *tokenizer_,
       .chat = chat_,
       .source = SourceFormat{.start = tokenizer_->encode("9").front(), .longest = 4}});
  ASSERT_EQ(rows.rows.size(), 2U);
  EXPECT_EQ(shown(rows.rows[0]), "9[45<|endoftext|>]");
  EXPECT_EQ(tokenizer_->decode(rows.rows[0].source), "012<|endoftext|>")
      << "a truncated source keeps its end";
  EXPECT_EQ(rows.rows[0].source_left_out, 1);
  EXPECT_EQ(tokenizer_->decode(rows.rows[1].source), "0\n1<|endoftext|>");
  EXPECT_EQ(cut_sources_note({&rows.rows}, 4),
            "1 source is longer than 4 tokens, the encoder's maximum, and lost 1 token at "
            "its end");
  ASSERT_EQ(rows.refused.size(), 2U);
  expect_words(rows.refused[0].reason, {"no prompt"});
  expect_words(rows.refused[1].reason, {"list of messages"});
}

TEST_F(ExampleRowsTest, ReadsFolderInNameOrder) {
  folder_.write("rows/b.jsonl", "{\"text\": \"0b\"}\n{}\n");
  folder_.write("rows/a.csv", "text\n0a\n");
  folder_.write("rows/c.json", "[{\"text\": \"0c\"}]");
  folder_.write("rows/dataset_info.json", "{}");
  folder_.write("rows/README.md", "none");
  const ExampleRows rows =
      read_example_rows(folder_ / "rows", {.tokenizer = *tokenizer_, .chat = chat_});
  ASSERT_EQ(rows.rows.size(), 3u);
  EXPECT_EQ(shown(rows.rows[0]), "0[a<|endoftext|>]");
  EXPECT_EQ(shown(rows.rows[2]), "0[c<|endoftext|>]");
  EXPECT_EQ(rows.rows[2].file, 2u);
  ASSERT_EQ(rows.refused.size(), 1u);
  expect_words(rows.place(rows.refused[0].file, rows.refused[0].line, false),
               {"line 2 of", "b.jsonl"});
  EXPECT_EQ(rows.form(), "3 files of CSV and JSON lines and JSON array, 3 rows of text");
}

}  // namespace
}  // namespace hybrid_trainer
