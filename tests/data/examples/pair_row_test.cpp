#include "src/data/examples/example_rows.h"

#include <boost/json.hpp>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/error.h"
#include "src/data/examples/packed_rows.h"
#include "tests/data/examples/rows_fixture.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

class PairRow : public RowsFixture {
 protected:
  ExampleRows pairs(const std::string& lines, std::int64_t longest = 1000) const {
    return read_example_rows(
        folder_.write("pairs.jsonl", lines),
        {.tokenizer = *tokenizer_, .chat = chat_, .longest = longest, .pairs = true});
  }
  /// Both texts of the only row, with the target tokens in brackets.
  std::string only_pair(const std::string& line) const {
    const ExampleRows examples = pairs(line + "\n");
    if (examples.rows.empty()) return "refused: " + examples.refused.front().reason;
    const ExampleRow& row = examples.rows.front();
    const auto half = [&](std::int64_t begin, std::int64_t end) {
      ExampleRow part;
      part.tokens.assign(row.tokens.begin() + begin, row.tokens.begin() + end);
      part.is_target.assign(row.is_target.begin() + begin, row.is_target.begin() + end);
      return shown(part);
    };
    return half(0, row.rejected_at) + " / " + half(row.rejected_at, std::ssize(row.tokens));
  }
  std::string refusal(const std::string& line, std::int64_t longest = 1000) const {
    const ExampleRows examples = pairs(line, longest);
    EXPECT_EQ(examples.rows.size(), 0u);
    return examples.refused.empty() ? "" : examples.refused.front().reason;
  }
};

TEST_F(PairRow, TextsTrainOnBothAnswers) {
  EXPECT_EQ(only_pair(R"({"prompt": "The cat", "chosen": " sat", "rejected": " flew"})"),
            "The cat[ sat<|endoftext|>] / The cat[ flew<|endoftext|>]");
}

TEST_F(PairRow, WithoutPromptRequiresCommonPrefix) {
  expect_words(refusal(R"({"question": "q", "chosen": "a", "rejected": "b"})"),
               {"no prompt", "--columns prompt=", "\"question\""});
  expect_words(refusal(R"({"chosen": [{"role": "user", "content": "a"}], "rejected": )"
                       R"([{"role": "user", "content": "b"}]})"),
               {"no prompt"});
  EXPECT_EQ(only_pair(R"({"prompt": "", "chosen": "0a", "rejected": "0b"})"),
            "0[a<|endoftext|>] / 0[b<|endoftext|>]");
}

TEST_F(PairRow, IgnoresOtherShapeInSameRow) {
  const std::string wanted = only_pair(R"({"prompt": "0", "chosen": "1", "rejected": "2"})");
  for (const char* beside :
       {R"("messages": [{"role": "user", "content": "0"}, {"role": "assistant", "content": "1"}])",
        R"("completion": "1")", R"("text": "01")"}) {
    const std::string row =
        concat(R"({"prompt": "0", "chosen": "1", "rejected": "2", )", beside, "}");
    EXPECT_EQ(only_pair(row), wanted) << beside;
    EXPECT_EQ(pairs(row).findings.unused.size(), 1u) << beside;
    EXPECT_FALSE(read_example_rows(folder_.write("rows.jsonl", row),
                                   {.tokenizer = *tokenizer_, .chat = chat_})
                     .refused.empty())
        << beside;
  }
}

TEST_F(PairRow, MessagesTrainOnAssistantTurns) {
  const std::string wanted =
      "<user>Hi<|endoftext|><assistant>[Yes<|endoftext|>] / "
      "<user>Hi<|endoftext|><assistant>[No<|endoftext|>]";
  const std::string user = R"({"role": "user", "content": "Hi"})",
                    yes = R"({"role": "assistant", "content": "Yes"})",
                    no = R"({"role": "assistant", "content": "No"})";
  const auto pair = [&](const std::string& prompt, const std::string& chosen,
                        const std::string& rejected) {
    return only_pair(concat("{", prompt.empty() ? "" : "\"prompt\": " + prompt + ", ",
                            "\"chosen\": ", chosen, ", \"rejected\": ", rejected, "}"));
  };
  EXPECT_EQ(pair("[" + user + "]", "[" + yes + "]", "[" + no + "]"), wanted);
  EXPECT_EQ(pair("", "[" + user + ", " + yes + "]", "[" + user + ", " + no + "]"), wanted);
  EXPECT_EQ(pair("\"Hi\"", "[" + user + ", " + yes + "]", "[" + user + ", " + no + "]"), wanted)
      << "the prompt is repeated, as in UltraFeedback";
  EXPECT_EQ(pair("\"Hi\"", "[" + yes + "]", "[" + no + "]"), wanted);
  EXPECT_EQ(pair("[" + user + "]", "\"Yes\"", "\"No\""), wanted);
}

TEST_F(PairRow, KeepsPromptNotRepeatedInChats) {
  const std::string system = R"({"role":"system","content":"S"})",
                    q = R"({"role":"user","content":"Q"})",
                    other = R"({"role":"user","content":"P"})",
                    one = R"({"role":"assistant","content":"1"})",
                    a = R"({"from":"AI","value":"a"})", b = R"({"from":"gpt","value":"b"})";
  const auto pair = [&](const std::string& prompt, const std::string& shared) {
    const std::string begin = shared.empty() ? "[" : concat("[", shared, ",");
    return concat("{", prompt, ",\"chosen\":", begin, a, "],\"rejected\":", begin, b, "]}");
  };
  const auto chat = [&](std::string begin) {
    for (std::size_t at = 0; (at = begin.find(' ', at)) != std::string::npos;)
      begin.replace(at, 1, "<|endoftext|>");
    return concat(begin, "[a<|endoftext|>] / ", begin, "[b<|endoftext|>]");
  };
  const std::pair<std::string, std::string> kPairs[] = {
      {pair(concat("\"prompt\":[", system, ",", q, "]"), q), "<system>S <user>Q <assistant>"},
      {pair(concat("\"prompt\":[", q, "]"), concat(system, ",", q)),
       "<system>S <user>Q <assistant>"},
      {pair(concat("\"prompt\":[", other, ",", one, "]"), q),
       "<user>P <assistant>1 <user>Q <assistant>"},
      {pair("\"prompt\":\"Q\"", system), "<system>S <user>Q <assistant>"},
      {pair("\"prompt\":\" Q\\n\"", q), "<user>Q <assistant>"},
      {pair("\"instruction\":\"P\",\"input\":\"\"", other), "<user>P <assistant>"},
      {pair("\"system\":\"S\",\"instruction\":\"\",\"input\":\"Q\"", q),
       "<system>S <user>Q <assistant>"},
      {pair(concat("\"messages\":[", system, ",", q, "]"), q), "<system>S <user>Q <assistant>"}};
  for (const auto& [line, wanted] : kPairs) EXPECT_EQ(only_pair(line), chat(wanted)) << line;
  for (const char* prompt :
       {"\"prompt\":\"You are a pirate.\"", "\"instruction\":\"You are a pirate.\""})
    expect_words(refusal(pair(prompt, q)),
                 {"You are a pirate.", "\"Q\"", "neither repeat nor continue"});
}

TEST_F(PairRow, SplitsTextsAtTokenBoundary) {
  const std::string begin = "\\n\\nHuman: Hi\\n\\nAssistant:";
  EXPECT_EQ(only_pair(concat(R"({"chosen": ")", begin, R"( The cat", "rejected": ")", begin,
                             R"( Then of"})")),
            "\n\nHuman: Hi\n\nAssistant:[ The cat<|endoftext|>] / "
            "\n\nHuman: Hi\n\nAssistant:[ Then of<|endoftext|>]");
}

TEST_F(PairRow, WithoutPromptUsesCommonPrefix) {
  EXPECT_EQ(only_pair(R"({"chosen": "The cat sat", "rejected": "The cat flew"})"),
            "The cat[ sat<|endoftext|>] / The cat[ flew<|endoftext|>]");
}

TEST_F(PairRow, RejectsInvalidPairsWithReason) {
  const auto expect = [&](const std::string& line, const std::string& reason) {
    EXPECT_TRUE(contains(refusal(line), reason)) << refusal(line);
  };
  expect(R"({"prompt": "a", "chosen": "b", "rejected": "b"})", "are equal");
  expect(R"({"prompt": "a", "chosen": "b<|endoftext|>", "rejected": "b"})", "have the same tokens");
  expect(R"({"prompt": "a", "chosen": "b"})", "want");
  expect(R"({"prompt": "a", "completion": "b"})", "want a preference pair");
  expect(R"({"prompt": "a", "chosen": [{"role": "assistant"}], "rejected": "b"})",
         "must both be strings");
  expect(R"({"chosen": [{"role": "assistant", "content": "a"}],
             "rejected": [{"role": "assistant", "content": "b"}]})",
         "no common beginning");
  expect(R"({"chosen": [{"role": "user", "content": "q"}, {"role": "user", "content": "a"}],
             "rejected": [{"role": "user", "content": "q"}, {"role": "user", "content": "b"}]})",
         "role \"user\", want \"assistant\"");
  expect(R"({"question": "q", "better": "a"})", "prompt=KEY,chosen=KEY,rejected=KEY");
  const std::string long_one = R"({"prompt": "The cat", "chosen": " sat", "rejected": " flew"})";
  EXPECT_TRUE(
      contains(refusal(long_one, 6), "a sequence has at most 5; raise data.sequence_length"))
      << refusal(long_one, 6);
  const ExampleRows both = pairs(R"({"prompt": "a", "chosen": "b", "rejected": "b"}
{"prompt": "The cat", "chosen": " sat", "rejected": " flew"})");
  ASSERT_EQ(both.refused.size(), 1u);
  EXPECT_EQ(both.refused.front().line, 1);
  EXPECT_EQ(both.rows.front().line, 2);
}

TEST_F(PairRow, PacksPairsWithHalvesAndReferences) {
  const ExampleRows examples = pairs(R"({"prompt": "The cat", "chosen": " sat", "rejected": " flew"}
{"prompt": "of the", "chosen": " the", "rejected": " of the of the"})");
  ASSERT_EQ(examples.rows.size(), 2u);
  const std::int64_t places = examples.rows[0].places() + examples.rows[1].places();
  auto references = std::make_shared<PairReferences>();
  *references = {{-1, -2}, {-3, -4}};
  const PackedRows packed(examples.rows,
                          {.sequence_length = places + 3, .padding = 9, .references = references});
  ASSERT_EQ(packed.size(), 1);
  const Stream stream(MemoryPool::create("test"));
  const Batch batch = packed.read(0, packed.empty_batch(1, stream));
  EXPECT_EQ(batch.targets(), 2) << "pairs";
  const auto* const tokens = batch.at("tokens").data<std::int32_t>();
  const auto* const targets = batch.at("targets").data<std::int32_t>();
  const auto* const positions = batch.at("positions").data<std::int32_t>();
  const auto* const halves = batch.at("halves").data<std::int32_t>();
  const auto* const reference = batch.at("references").data<float>();
  std::int64_t place = 0;
  std::int32_t pair = 0;
  for (const std::size_t i : packed.rows_of(0)) {
    const ExampleRow& row = examples.rows[i];
    EXPECT_EQ(reference[2 * pair], static_cast<float>((*references)[i].chosen));
    EXPECT_EQ(reference[2 * pair + 1], static_cast<float>((*references)[i].rejected));
    const auto middle = static_cast<std::size_t>(row.rejected_at);
    for (const auto& [first, last, half] : {std::tuple(std::size_t{0}, middle, 2 * pair),
                                            {middle, row.tokens.size(), 2 * pair + 1}}) {
      for (std::size_t t = first; t + 1 < last; ++t, ++place) {
        EXPECT_EQ(tokens[place], row.tokens[t]);
        EXPECT_EQ(positions[place], static_cast<std::int32_t>(t - first));
        EXPECT_EQ(targets[place], row.is_target[t + 1] ? row.tokens[t + 1] : kNoTarget);
        EXPECT_EQ(halves[place], row.is_target[t + 1] ? half : -1);
      }
    }
    ++pair;
  }
  for (; place < places + 3; ++place) {
    EXPECT_EQ(tokens[place], 9);
    EXPECT_EQ(halves[place], -1);
  }
}

}  // namespace
}  // namespace hybrid_trainer
