#include "hybrid_trainer/fine_tuning/end_tokens.h"

#include <map>
#include <set>

namespace hybrid_trainer {
namespace {

class EndTokens {
 public:
  explicit EndTokens(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add(const ExampleRow& row) {
    if (row.end_token) found_.insert(*row.end_token);
  }

  /// Drops those behind which the row goes on with what is learnt.
  void check(const ExampleRow& row) {
    for (std::size_t i = 0; i < row.tokens.size(); ++i) {
      if (!row.learnt[i] || !found_.contains(row.tokens[i])) continue;
      std::size_t next = i + 1;
      while (next < row.tokens.size() && row.learnt[next] && ends(row.tokens[next])) ++next;
      if (next < row.tokens.size() && row.learnt[next]) found_.erase(row.tokens[i]);
      i = next - 1;
    }
  }

  std::vector<std::int32_t> tokens() const { return {found_.begin(), found_.end()}; }

 private:
  /// Whether the token may stand behind the end of an answer.
  bool ends(std::int32_t id) {
    const auto [entry, is_new] = ends_.try_emplace(id);
    if (is_new) entry->second = is_blank_token(tokenizer_, id) || is_special_token(tokenizer_, id);
    return entry->second;
  }

  const Tokenizer& tokenizer_;
  std::set<std::int32_t> found_;
  std::map<std::int32_t, bool> ends_;
};

}  // namespace

bool is_special_token(const Tokenizer& tokenizer, std::int32_t id) {
  const std::string_view spelling = tokenizer.token_bytes(id);
  const std::vector<std::int32_t> alone{id};
  return tokenizer.encode(spelling, ControlText::kAsTokens) == alone &&
         tokenizer.encode(spelling, ControlText::kAsText) != alone;
}

bool is_blank_token(const Tokenizer& tokenizer, std::int32_t id) {
  return tokenizer.token_bytes(id).find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::vector<std::int32_t> end_tokens_of(std::span<const ExampleRow> rows,
                                        const Tokenizer& tokenizer) {
  EndTokens ends(tokenizer);
  for (const ExampleRow& row : rows) ends.add(row);
  for (const ExampleRow& row : rows) ends.check(row);
  return ends.tokens();
}

}  // namespace hybrid_trainer
