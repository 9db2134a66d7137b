#include "src/run/retrieval.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "src/core/messages.h"
#include "src/core/threads.h"
#include "src/data/tables/row_files.h"
#include "src/data/tables/table_reader.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace json = boost::json;
namespace fs = std::filesystem;

namespace {

using IndexOfId = std::unordered_map<std::string, std::int64_t>;

constexpr const char *kId = "_id", *kTitle = "title", *kText = "text";
constexpr const char *kQueryId = "query-id", *kDocumentId = "corpus-id", *kScore = "score";

/// Calls `use` for each row. Throws DataError naming the first row that is not valid.
void read_rows_strictly(const fs::path& path, const std::vector<std::string>& keys,
                        const std::function<void(const json::object&)>& use) {
  std::int64_t line = 0, rows = 0;
  std::string problem;
  const auto refuse = [&](std::int64_t number, const std::string& reason) {
    if (problem.empty()) line = number, problem = reason;
  };
  const auto take = [&](std::int64_t number, const json::object& row, const WideIntegers&) {
    ++rows;
    try {
      if (problem.empty()) use(row);
    } catch (const DataError& error) {
      refuse(number, error.what());
    }
  };
  const TableForm form = visit_rows(path, {.wanted = keys, .renames = false}, {take, refuse});
  if (!problem.empty())
    throw DataError(concat(path.string(), ": ", form.unit(), " ", line, ": ", problem));
  if (rows == 0) throw DataError(concat(path.string(), ": is empty; want rows with ", join(keys)));
}

std::string string_in(const json::object& row, const char* key) {
  const json::value* value = value_in_row(row, key);
  if (value == nullptr) return "";
  if (!value->is_string())
    throw DataError(
        concat("\"", key, "\": got ", json_line(*value).substr(0, 60), ", want a string"));
  return std::string(value->get_string());
}

/// Returns an id, which may be a whole number, as text.
std::string id_in(const json::object& row, const char* key) {
  const json::value* value = value_in_row(row, key);
  if (value != nullptr && value->is_int64()) return std::to_string(value->get_int64());
  std::string id = string_in(row, key);
  if (id.empty()) throw DataError(concat("has no \"", key, "\""));
  return id;
}

double score_in(const json::object& row) {
  const json::value* value = value_in_row(row, kScore);
  double score = NAN;
  if (value != nullptr && value->is_number()) {
    score = value->to_number<double>();
  } else {
    const std::string text = string_in(row, kScore);
    const char* const end = text.data() + text.size();
    if (std::from_chars(text.data(), end, score).ptr != end || text.empty()) score = NAN;
  }
  if (!std::isfinite(score))
    throw DataError(concat("\"", kScore, "\": got ",
                           value == nullptr ? "nothing" : json_line(*value),
                           ", want a number, such as 0 or 1"));
  return score;
}

std::int64_t index_of(const std::string& id, const IndexOfId& ids, const char* key,
                      const fs::path& file) {
  const auto found = ids.find(id);
  if (found == ids.end())
    throw DataError(concat("\"", key, "\": got \"", id, "\", which ", file.string(), " lacks"));
  return found->second;
}

void add_id(const std::string& id, IndexOfId& ids) {
  if (!ids.emplace(id, std::ssize(ids)).second)
    throw DataError(concat("\"", kId, "\": \"", id, "\" is also the id of an earlier row"));
}

/// The documents most similar to one query, in descending order; ties keep the corpus order.
class TopDocuments {
 public:
  void add(float similarity, std::int64_t document) {
    if (best_.size() == kMost) {
      if (similarity <= best_.front().similarity) return;  // a tie is later in the corpus
      std::ranges::pop_heap(best_, is_before);
      best_.pop_back();
    }
    best_.push_back({similarity, document});
    std::ranges::push_heap(best_, is_before);
  }
  std::vector<std::int64_t> sorted() {
    std::ranges::sort_heap(best_, is_before);
    std::vector<std::int64_t> documents;
    for (const Hit& hit : best_) documents.push_back(hit.document);
    return documents;
  }

 private:
  static constexpr auto kMost = static_cast<std::size_t>(RetrievalScore::kRecallRanks.back());
  struct Hit {
    float similarity;
    std::int64_t document;
  };
  static bool is_before(const Hit& a, const Hit& b) {
    return a.similarity > b.similarity || (a.similarity == b.similarity && a.document < b.document);
  }
  std::vector<Hit> best_;  // a heap whose front ranks lowest
};

double discounted(double gain, std::size_t rank) {
  return gain / std::log2(static_cast<double>(rank) + 2);
}

void add_ranking(const std::vector<std::int64_t>& ranking,
                 const std::map<std::int64_t, double>& gains, RetrievalScore& sum) {
  if (gains.empty()) return;
  constexpr auto kRanks = static_cast<std::size_t>(RetrievalScore::kRanks);
  std::vector<double> ideal;
  for (const auto& [document, gain] : gains) ideal.push_back(gain);
  std::ranges::sort(ideal, std::greater<>());
  double best = 0, reached = 0, reciprocal = 0;
  for (std::size_t rank = 0; rank < std::min(kRanks, ideal.size()); ++rank)
    best += discounted(ideal[rank], rank);
  std::array<std::int64_t, RetrievalScore::kRecallRanks.size()> found{};
  for (std::size_t rank = 0; rank < ranking.size(); ++rank) {
    const auto gain = gains.find(ranking[rank]);
    if (gain == gains.end()) continue;
    for (std::size_t k = 0; k < found.size(); ++k)
      if (std::cmp_less(rank, RetrievalScore::kRecallRanks[k])) ++found[k];
    if (rank >= kRanks) continue;
    reached += discounted(gain->second, rank);
    if (reciprocal == 0) reciprocal = 1 / static_cast<double>(rank + 1);
  }
  sum.ndcg += reached / best;
  sum.reciprocal_rank += reciprocal;
  for (std::size_t k = 0; k < found.size(); ++k)
    sum.recall[k] += static_cast<double>(found[k]) / static_cast<double>(gains.size());
}

void check_shape(const char* name, const Tensor& embeddings, std::size_t rows) {
  if (embeddings.shape().rank() == 2 && std::cmp_equal(embeddings.size(0), rows) &&
      embeddings.dtype() == DType::kF32)
    return;
  throw ShapeMismatch(concat("score_retrieval: got ", name, " ", embeddings.shape().text(),
                             ", want f32 rows for ", rows, " texts"));
}

}  // namespace

RetrievalSet read_retrieval_set(const fs::path& corpus, const fs::path& queries,
                                const fs::path& relevant) {
  RetrievalSet set;
  IndexOfId documents, all_queries;
  read_rows_strictly(corpus, {kId, kTitle, kText}, [&](const json::object& row) {
    add_id(id_in(row, kId), documents);
    const std::string text = string_in(row, kTitle) + " " + string_in(row, kText);
    set.documents.emplace_back(trimmed(text));
  });
  std::vector<RetrievalSet::Query> given;
  read_rows_strictly(queries, {kId, kText}, [&](const json::object& row) {
    const std::string id = id_in(row, kId);
    add_id(id, all_queries);
    const auto same = documents.find(id);
    given.push_back({.text = string_in(row, kText),
                     .gains = {},
                     .same_id = same == documents.end() ? -1 : same->second});
    if (trimmed(given.back().text).empty()) throw DataError("has no \"text\"");
  });
  std::vector<std::map<std::int64_t, double>> judged(given.size());
  bool has_relevant = false;
  read_rows_strictly(relevant, {kQueryId, kDocumentId, kScore}, [&](const json::object& row) {
    const double score = score_in(row);
    const std::int64_t query = index_of(id_in(row, kQueryId), all_queries, kQueryId, queries);
    const std::int64_t document = index_of(id_in(row, kDocumentId), documents, kDocumentId, corpus);
    const auto [judgment, is_new] =
        judged[static_cast<std::size_t>(query)].emplace(document, score);
    if (!is_new && judgment->second != score)
      throw DataError(concat("\"", kScore, "\": got ", score, ", but an earlier row has ",
                             judgment->second, " for this query and document"));
    if (score <= 0) return;
    given[static_cast<std::size_t>(query)].gains[document] = score;
    has_relevant = true;
  });
  if (!has_relevant)
    throw DataError(concat(relevant.string(), ": no document is relevant to any query; want \"",
                           kScore, "\" above 0 for relevant documents"));
  for (std::size_t query = 0; query < given.size(); ++query)
    if (!judged[query].empty()) set.queries.push_back(std::move(given[query]));
  return set;
}

std::string RetrievalScore::text() const {
  std::string recalls;
  for (std::size_t k = 0; k < recall.size(); ++k)
    recalls += concat(k == 0 ? "recall@" : ", @", kRecallRanks[k], " ", units::fixed(recall[k], 4));
  return concat("nDCG@", kRanks, " ", units::fixed(ndcg, 4), ", MRR@", kRanks, " ",
                units::fixed(reciprocal_rank, 4), ", ", recalls, " over ", units::grouped(queries),
                " queries and ", units::grouped(documents), " documents");
}

json::object RetrievalScore::json() const {
  json::object object{{concat("ndcg@", kRanks), ndcg}, {concat("mrr@", kRanks), reciprocal_rank}};
  for (std::size_t k = 0; k < recall.size(); ++k)
    object[concat("recall@", kRecallRanks[k])] = recall[k];
  object["queries"] = queries;
  object["documents"] = documents;
  return object;
}

RetrievalScore score_retrieval(const Tensor& documents, const Tensor& queries,
                               const RetrievalSet& set, const Stream& stream) {
  constexpr std::int64_t kQueriesAtOnce = 256, kDocumentsAtOnce = 4096;
  check_shape("documents", documents, set.documents.size());
  check_shape("queries", queries, set.queries.size());
  const std::int64_t count = queries.size(0), corpus = documents.size(0);
  RetrievalScore score{.queries = count, .documents = corpus};
  const Tensor block =
      Tensor::empty({std::min(count, kQueriesAtOnce) * std::min(corpus, kDocumentsAtOnce)},
                    DType::kF32, MemoryKind::kWorkspace, stream);
  for (std::int64_t first = 0; first < count; first += kQueriesAtOnce) {
    const std::int64_t some = std::min(kQueriesAtOnce, count - first);
    const auto query_at = [&](std::int64_t q) -> const RetrievalSet::Query& {
      return set.queries[static_cast<std::size_t>(first + q)];
    };
    std::vector<TopDocuments> top(static_cast<std::size_t>(some));
    for (std::int64_t begin = 0; begin < corpus; begin += kDocumentsAtOnce) {
      const std::int64_t end = std::min(corpus, begin + kDocumentsAtOnce), width = end - begin;
      const Tensor similarities = block.rows(0, some * width).view({some, width});
      kernels::matmul(similarities, queries.rows(first, first + some), kernels::Transpose::kNo,
                      documents.rows(begin, end), kernels::Transpose::kYes,
                      kernels::GradientMode::kOverwrite, stream);
      run_each(some, 1, [&](std::int64_t q) {
        const float* const row = similarities.data<float>() + q * width;
        for (std::int64_t d = 0; d < width; ++d) {
          if (!std::isfinite(row[d]))
            throw Diverged(concat("the similarity of query ", first + q + 1, " and document ",
                                  begin + d + 1, " is not finite"));
          if (begin + d != query_at(q).same_id)
            top[static_cast<std::size_t>(q)].add(row[d], begin + d);
        }
      });
    }
    for (std::int64_t q = 0; q < some; ++q)
      add_ranking(top[static_cast<std::size_t>(q)].sorted(), query_at(q).gains, score);
  }
  const double share = 1 / static_cast<double>(count);
  score.ndcg *= share;
  score.reciprocal_rank *= share;
  for (double& value : score.recall) value *= share;
  return score;
}

}  // namespace hybrid_trainer
