#pragma once

#include <array>
#include <boost/json/object.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// Texts of a retrieval benchmark, and the documents that are relevant to each query.
struct RetrievalSet {
  struct Query {
    std::string text;
    std::map<std::int64_t, double> gains;  // positive gain of each relevant document
    /// Index of the document with the same id as the query, or -1. It is never retrieved.
    std::int64_t same_id = -1;
  };
  /// Title and text of each document, in the order of the corpus.
  std::vector<std::string> documents;
  std::vector<Query> queries;  // queries with judgments, in the order of their file
};

/// Reads a benchmark in BEIR's form:
///   corpus:   {"_id": "d1", "title": "…", "text": "…"}, with or without a title
///   queries:  {"_id": "q1", "text": "…"}
///   relevant: a table with the columns query-id, corpus-id and score, which is 0 for documents that
///             are not relevant
/// Each file may have any form of visit_rows. Omits queries without judgments. Throws DataError,
/// which names the file and the row, for missing values, unknown ids and duplicate ids. Throws
/// DataError if no document is relevant to any query. Also throws MissingInput and IoError.
RetrievalSet read_retrieval_set(const std::filesystem::path& corpus,
                                const std::filesystem::path& queries,
                                const std::filesystem::path& relevant);

/// Means over the queries, from 0 to 1, computed like BEIR.
struct RetrievalScore {
  static constexpr std::int64_t kRanks = 10;  // maximum rank for ndcg and reciprocal_rank
  static constexpr std::array<std::int64_t, 3> kRecallRanks{1, 10, 100};

  std::int64_t queries = 0, documents = 0;
  double ndcg = 0;             // with the scores of the judgments as gains
  double reciprocal_rank = 0;  // reciprocal rank of the first relevant document
  std::array<double, kRecallRanks.size()> recall{};

  /// Returns "nDCG@10 0.412, MRR@10 0.389, recall@1 …, @10 …, @100 … over 300 queries and 5,183
  /// documents".
  std::string text() const;
  /// Returns {"ndcg@10": 0.412, …}.
  boost::json::object json() const;
};

/// Ranks all documents for each query and rates the ranking. Ranks by the dot product of the
/// embeddings, which is the cosine similarity if the rows have norm 1. Equal documents keep the
/// order of the corpus. documents: (N, W) f32, queries: (M, W) f32, in the order of `set`, in host
/// memory. Throws ShapeMismatch; Diverged if an embedding is not finite.
RetrievalScore score_retrieval(const Tensor& documents, const Tensor& queries,
                               const RetrievalSet& set, const Stream& stream);

}  // namespace hybrid_trainer
