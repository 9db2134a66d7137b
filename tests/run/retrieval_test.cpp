#include "src/run/retrieval.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "src/files/json.h"
#include "tests/support/test_files.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer {
namespace {

class RetrievalTest : public ::testing::Test {
 protected:
  RetrievalTest() {
    write("corpus.jsonl",
          "{\"_id\": \"d1\", \"title\": \"Boats\", \"text\": \"They float.\", \"metadata\": {}}\n"
          "{\"_id\": \"d2\", \"title\": \"\", \"text\": \"Stones sink.\"}\n"
          "{\"_id\": 7, \"text\": \"Seven.\"}\n");
    write("queries.jsonl",
          "{\"_id\": \"q1\", \"text\": \"what floats\"}\n{\"_id\": \"q2\", \"text\": \"unused\"}\n"
          "{\"_id\": \"d2\", \"text\": \"what sinks\"}\n");
    write("test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t2\nd2\t7\t0\nq1\t7\t1\n");
  }
  void write(const std::string& name, const std::string& text) { folder_.write(name, text); }
  RetrievalSet read() const {
    return read_retrieval_set(folder_ / "corpus.jsonl", folder_ / "queries.jsonl",
                              folder_ / "test.tsv");
  }
  std::string refusal() const {
    return message_of<DataError>([&] { read(); });
  }
  std::string refusal_of(const std::string& judgments) {
    write("test.tsv", "query-id\tcorpus-id\tscore\n" + judgments);
    return refusal();
  }

  static Tensor rows_of(const std::vector<std::vector<double>>& rows, const Stream& stream) {
    Tensor tensor = Tensor::empty({std::ssize(rows), std::ssize(rows.at(0))}, DType::kF32,
                                  MemoryKind::kData, stream);
    float* to = tensor.data<float>();
    for (const std::vector<double>& row : rows)
      for (const double value : row) *to++ = static_cast<float>(value);
    return tensor;
  }

  TemporaryFolder folder_;
  Stream stream_ = testing::test_stream();
};

TEST_F(RetrievalTest, ReadsThreeFiles) {
  const RetrievalSet set = read();
  EXPECT_EQ(set.documents,
            (std::vector<std::string>{"Boats They float.", "Stones sink.", "Seven."}));
  ASSERT_EQ(set.queries.size(), 2u);  // q2 has no judgment
  EXPECT_EQ(set.queries[0].text, "what floats");
  EXPECT_EQ(set.queries[0].gains, (std::map<std::int64_t, double>{{0, 2}, {2, 1}}));
  EXPECT_EQ(set.queries[0].same_id, -1);
  EXPECT_EQ(set.queries[1].text, "what sinks");
  EXPECT_TRUE(set.queries[1].gains.empty());
  EXPECT_EQ(set.queries[1].same_id, 1);
}

TEST_F(RetrievalTest, AcceptsRepeatedJudgment) {
  write("test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td1\t2.0\n");
  EXPECT_EQ(read().queries.at(0).gains, (std::map<std::int64_t, double>{{0, 2}}));
}

TEST_F(RetrievalTest, InvalidJudgmentNamesFileAndRow) {
  expect_words(refusal_of("q1\td1\t1\nq9\td1\t1\n"),
               {"test.tsv: row 2", "\"q9\"", "queries.jsonl lacks"});
  expect_words(refusal_of("q1\td9\t1\n"), {"test.tsv: row 1", "\"d9\"", "corpus.jsonl lacks"});
  expect_words(refusal_of("q1\td1\thigh\n"), {"row 1", "\"score\": got \"high\"", "a number"});
  expect_words(refusal_of("q1\td1\t1\nq1\td1\t2\n"), {"row 2", "got 2", "earlier row has 1"});
  expect_words(refusal_of("q1\td1\t0\n"), {"test.tsv: no document is relevant", "above 0"});
  expect_words(refusal_of("q1\td1\n"), {"row 1", "2 cells"});
  expect_words(refusal_of(""), {"test.tsv: is empty", "query-id, corpus-id, score"});
}

TEST_F(RetrievalTest, TableWithoutColumnNamesIsRefused) {
  write("test.tsv", "q1\t0\td1\t1\n");  // TREC's form
  expect_words(refusal(), {"test.tsv", "query-id"});
}

TEST_F(RetrievalTest, InvalidTextNamesFileAndLine) {
  write("queries.jsonl",
        "{\"_id\": \"q1\", \"text\": \"a\"}\n\n{\"_id\": \"q1\", \"text\": \"b\"}\n");
  expect_words(refusal(), {"queries.jsonl: line 3", "\"q1\"", "an earlier row"});
  write("queries.jsonl", "{\"_id\": \"q1\", \"text\": \" \"}\n");
  expect_words(refusal(), {"queries.jsonl: line 1", "has no \"text\""});
  write("corpus.jsonl", "{\"text\": \"a\"}\n");
  expect_words(refusal(), {"corpus.jsonl: line 1", "has no \"_id\""});
  write("corpus.jsonl", "{\"_id\": \"d1\", \"text\": 5}\n");
  expect_words(refusal(), {"corpus.jsonl: line 1", "\"text\": got 5", "a string"});
}

/// tests/golden/make_retrieval_golden.py: rankings with ties, graded judgments, and a query without
/// relevant documents.
TEST_F(RetrievalTest, EqualsTrecEval) {
  const json::object golden_scores = read_json(golden("retrieval_golden.json")).get_object();
  using Rows = std::vector<std::vector<double>>;
  const auto documents = json::value_to<Rows>(golden_scores.at("documents"));
  const auto queries = json::value_to<Rows>(golden_scores.at("queries"));
  RetrievalSet set;
  set.documents.resize(documents.size());
  for (std::int64_t i = 0; i < std::ssize(queries); ++i)
    set.queries.push_back({.text = "", .gains = {}, .same_id = i});
  for (const auto& judgment : json::value_to<Rows>(golden_scores.at("judgments")))
    if (judgment[2] > 0)
      set.queries.at(static_cast<std::size_t>(judgment[0]))
          .gains[static_cast<std::int64_t>(judgment[1])] = judgment[2];
  const RetrievalScore score =
      score_retrieval(rows_of(documents, stream_), rows_of(queries, stream_), set, stream_);
  const json::object found = score.json();
  for (const char* name : {"ndcg@10", "mrr@10", "recall@1", "recall@10", "recall@100"})
    EXPECT_NEAR(found.at(name).as_double(), golden_scores.at(name).as_double(), 1e-12) << name;
  EXPECT_EQ(found.at("queries"), json::value(7));
  EXPECT_EQ(found.at("documents"), json::value(130));
}

/// One query and more documents than a block has.
class RankingTest : public RetrievalTest {
 protected:
  static constexpr std::int64_t kDocuments = 9000;
  RankingTest() { set_.documents.resize(kDocuments); }
  RetrievalScore score(const std::vector<double>& similarities) {
    std::vector<std::vector<double>> rows;
    for (const double value : similarities) rows.push_back({value, 0});
    return score_retrieval(rows_of(rows, stream_), rows_of({{1, 0}}, stream_), set_, stream_);
  }
  RetrievalSet set_;
};

TEST_F(RankingTest, TiesKeepOrderOfCorpus) {
  set_.queries = {{.text = "", .gains = {{9, 1}, {10, 1}, {8999, 1}, {99, 1}}, .same_id = -1}};
  const RetrievalScore equal = score(std::vector<double>(kDocuments, 0.5));
  EXPECT_DOUBLE_EQ(equal.reciprocal_rank, 0.1);
  EXPECT_EQ(equal.recall, (std::array<double, 3>{0, 0.25, 0.75}));
}

TEST_F(RankingTest, RanksAcrossBlocks) {
  set_.queries = {{.text = "", .gains = {{8999, 1}, {0, 1}}, .same_id = -1}};
  std::vector<double> rising(kDocuments);
  std::iota(rising.begin(), rising.end(), -4000.0);
  const RetrievalScore found = score(rising);
  EXPECT_EQ(found.recall, (std::array<double, 3>{0.5, 0.5, 0.5}));
  EXPECT_DOUBLE_EQ(found.reciprocal_rank, 1);
  EXPECT_DOUBLE_EQ(found.ndcg, 1 / (1 + 1 / std::log2(3)));
}

TEST_F(RankingTest, SkipsDocumentWithIdOfQuery) {
  set_.queries = {{.text = "", .gains = {{1, 1}}, .same_id = 0}};
  EXPECT_DOUBLE_EQ(score(std::vector<double>(kDocuments, 1)).reciprocal_rank, 1);
}

TEST_F(RankingTest, RefusesOtherShapesAndValuesThatAreNotFinite) {
  set_.queries = {{.text = "", .gains = {{1, 1}}, .same_id = 0}};
  const std::string message = message_of<ShapeMismatch>([&] { score({1, 2}); });
  expect_words(message, {"documents (2, 2)", "9000 texts"});
  std::vector<double> values(kDocuments, 1);
  values[4100] = NAN;
  expect_words(message_of<Diverged>([&] { score(values); }), {"query 1", "document 4101"});
}

TEST(RetrievalScore, TextNamesMeasures) {
  const RetrievalScore score{.queries = 300,
                             .documents = 5183,
                             .ndcg = 0.6451,
                             .reciprocal_rank = 0.5,
                             .recall = {0.25, 0.75, 1}};
  EXPECT_EQ(score.text(),
            "nDCG@10 0.6451, MRR@10 0.5000, recall@1 0.2500, @10 0.7500, @100 1.0000 over 300 "
            "queries and 5,183 documents");
}

}  // namespace
}  // namespace hybrid_trainer
