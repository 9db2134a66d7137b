#include "src/data/examples/example_rows.h"

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/data/examples/row_tokens.h"
#include "src/data/examples/shaped_row.h"
#include "src/data/tables/row_files.h"

namespace hybrid_trainer {

namespace {

class EndTokens {
 public:
  explicit EndTokens(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add(const ExampleRow& row) {
    if (row.end_token) found_.insert(*row.end_token);
  }

  /// Drops each end token that occurs in the row before further target tokens.
  void check(const ExampleRow& row) {
    for (std::size_t i = 0; i < row.tokens.size(); ++i) {
      if (!row.is_target[i] || !found_.contains(row.tokens[i])) continue;
      std::size_t next = i + 1;
      while (next < row.tokens.size() && row.is_target[next] && ends(row.tokens[next])) ++next;
      if (next < row.tokens.size() && row.is_target[next]) found_.erase(row.tokens[i]);
      i = next - 1;
    }
  }

  std::vector<std::int32_t> tokens() const { return {found_.begin(), found_.end()}; }

 private:
  /// Returns whether the token may follow the end of an answer.
  bool ends(std::int32_t id) {
    const auto [entry, is_new] = ends_.try_emplace(id);
    if (is_new) entry->second = is_blank_token(tokenizer_, id) || is_special_token(tokenizer_, id);
    return entry->second;
  }

  const Tokenizer& tokenizer_;
  std::set<std::int32_t> found_;
  std::map<std::int32_t, bool> ends_;
};

void add_row(const GivenRow& row, ConvertedRow made, const ExampleFormat& format,
             ExampleRows& examples) {
  const RowShape shape = made.shape;
  made.row.file = row.file;
  made.row.line = row.line;
  if (made.rejected && format.pairs)
    made.row = pair_row(std::move(made.row), *made.rejected, format);
  if (format.pairs && !made.rejected)
    throw DataError(
        "want a preference pair, {\"prompt\": …, \"chosen\": …, \"rejected\": …}, of strings or "
        "lists of messages");
  examples.shapes.resize(examples.files.size());
  ++examples.shapes[row.file][shape];  // of used lines
  if (!made.rejected || format.pairs) {
    examples.rows.push_back(std::move(made.row));
    return;
  }
  made.rejected->file = made.row.file;
  made.rejected->line = row.line;
  examples.pairs.push_back(
      {std::move(made.row), *std::move(made.rejected), std::move(made.chosen_columns)});
}

void check_columns(const ExampleRows& examples, const ColumnNames& columns,
                   const ExampleFindings& found) {
  for (const auto& [name, column] : columns.names()) {
    if (column.empty() || !found.unused.contains(name) || found.used.contains(name)) continue;
    throw DataError(
        concat(examples.files.front().path.string(), ": the column \"", column, "\", read as ",
               name, ", has no effect: these are ", examples.form(), ", which have no ", name,
               "; leave it out, or disable the column that is read instead with --columns NAME="));
  }
}

std::string omitted_keys_note(const std::map<std::string, std::int64_t>& omitted) {
  std::string keys;
  for (const auto& [key, count] : omitted)
    keys +=
        concat(keys.empty() ? "\"" : ", \"", key, "\" (", count, count == 1 ? " time)" : " times)");
  if (keys.empty()) return "";
  return concat("the chat template leaves out all or part of ", keys,
                ", so the model is not trained on it");
}

/// Returns 'the role "x" is' or 'the roles "x", "y" are', followed by `rest`, or "" without roles.
std::string roles_note(const std::set<std::string>& roles, const char* rest) {
  if (roles.empty()) return "";
  std::vector<std::string> names;
  for (const std::string& role : roles)
    names.push_back(json::serialize(json::value(role.substr(0, 40))));
  names.resize(std::min<std::size_t>(names.size(), 8));
  return concat(roles.size() == 1 ? "the role " : "the roles ", join(names),
                roles.size() == 1 ? " is " : " are ", rest);
}

std::string empty_answers_note(std::int64_t answers) {
  if (answers == 0) return "";
  return concat(answers, answers == 1 ? " answer is" : " answers are",
                " empty: the model learns to end its turn immediately");
}

std::string unused_members_note(const ExampleFindings& findings) {
  constexpr std::size_t kNamed = 20;
  std::vector<std::string> names;
  for (const auto& [key, rows] : findings.unused)
    names.push_back(concat('"', key.substr(0, 60), '"',
                           rows == 0 ? "" : concat(" (", rows, rows == 1 ? " row)" : " rows)")));
  for (const std::string& key : findings.unused_of_messages)
    names.push_back(concat('"', key.substr(0, 60), "\" of messages"));
  if (names.empty()) return "";
  const std::size_t more = names.size() > kNamed ? names.size() - kNamed : 0;
  names.resize(names.size() - more);
  return concat("not used in training: ", join(names),
                more > 0 ? concat(" and ", more, " more") : "");
}

std::string without_template_note(const ExampleRows& examples) {
  const std::int64_t rows = examples.findings.without_template;
  if (rows == 0) return "";
  const bool are_pairs = !examples.rows.empty() && examples.rows.front().rejected_at > 0;
  return concat(rows, rows == 1 ? " text is" : " texts are",
                " learned as plain text, without the chat template that `hybrid sample --chat` "
                "uses; to convert them to chats, give --columns instruction=prompt",
                are_pairs ? "" : ",output=completion");
}

std::string untokenized_endings_note(
    const std::map<std::string, std::int64_t>& untokenized_endings) {
  if (untokenized_endings.empty()) return "";
  std::int64_t chats = 0;
  for (const auto& [ending, count] : untokenized_endings) chats += count;
  const auto most = std::ranges::max_element(untokenized_endings, {},
                                             [](const auto& entry) { return entry.second; });
  const bool is_blank = most->first.find_first_not_of(" \t\r\n") == std::string::npos;
  return concat(chats, chats == 1 ? " chat ends" : " chats end", " with ",
                is_blank ? "the answer itself and no token after it"
                         : concat(json::serialize(json::value(most->first.substr(0, 60))),
                                  ", which is not a special token of this tokenizer"),
                ", so generation will not stop there; let the chat template write eos_token after "
                "the assistant's answer",
                is_blank ? "" : ", or stop at that text with hybrid sample --stop");
}

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

ExampleRow pair_row(ExampleRow chosen, const ExampleRow& rejected, const ExampleFormat& format) {
  if (chosen.tokens == rejected.tokens && chosen.is_target == rejected.is_target)
    throw DataError("\"chosen\" and \"rejected\" have the same tokens, so there is no preference");
  const std::int64_t all = std::ssize(chosen.tokens) + chosen.left_out +
                           std::ssize(rejected.tokens) + rejected.left_out - 2;
  if (all > format.longest - 1)
    throw DataError(concat("its two answers with their prompts have ", all,
                           " tokens, but a sequence has at most ", format.longest - 1, "; ",
                           format.context == 0 || format.longest <= format.context
                               ? "raise data.sequence_length"
                               : kContextIsFull));
  ExampleRow row = std::move(chosen);
  row.rejected_at = std::ssize(row.tokens);
  row.tokens.insert(row.tokens.end(), rejected.tokens.begin(), rejected.tokens.end());
  row.is_target.insert(row.is_target.end(), rejected.is_target.begin(), rejected.is_target.end());
  row.answers_left_out += rejected.answers_left_out;
  return row;
}

std::int64_t ExampleRow::targets() const {
  return std::count(is_target.begin(), is_target.end(), true);
}

std::vector<std::string> ExampleRows::notes() const {
  std::vector<std::string> notes;
  std::int64_t answers = 0, of_rows = 0;
  for (const ExampleRow& row : rows) {
    answers += row.answers_left_out;
    of_rows += row.answers_left_out > 0 ? 1 : 0;
  }
  if (answers > 0)
    notes.push_back(concat(answers, " answers in ", of_rows, " rows are not trained on: the ",
                           "chat template does not write them, or their position in its text ",
                           "cannot be determined"));
  for (const std::string& note : std::array{
           unused_members_note(findings), omitted_keys_note(findings.omitted),
           roles_note(findings.original_roles, "read as system, user, assistant or tool"),
           roles_note(findings.other_roles,
                      "none of system, developer, user, assistant and tool; the chat template "
                      "writes these turns, and they are not trained on as answers"),
           empty_answers_note(findings.empty_answers),
           untokenized_endings_note(findings.untokenized_endings), without_template_note(*this)})
    if (!note.empty()) notes.push_back(note);
  return notes;
}

std::string ExampleRows::mostly_rejected_warning() const {
  const std::size_t used = rows.size() + pairs.size();
  if (refused.empty() || refused.size() <= used) return "";
  const Refusal& first = refused.front();
  const std::string unit = files[first.file].form.unit();
  return concat(used == 0
                    ? concat("every ", unit, " is refused; ")
                    : concat(refused.size(), " of ", refused.size() + used, " ", unit,
                             "s are refused, so the file may be damaged or contain other data; to "
                             "train on the remaining rows, remove the refused ones; "),
                place(first.file, first.line, false), ": ", first.reason);
}

std::string ExampleRows::form() const {
  std::vector<std::string> containers, counts;
  Shapes all;
  for (const RowFile& file : files) {
    const std::string& key = file.form.array_key;
    const std::string name =
        concat(name_of(file.form.container), key.empty() ? "" : " under ", key);
    if (std::ranges::count(containers, name) == 0) containers.push_back(name);
  }
  for (const Shapes& of_file : shapes)
    for (const auto& [shape, count] : of_file) all[shape] += count;
  for (const auto& [shape, count] : all)
    counts.push_back(concat(count,
                            count == 1 && counts.empty() ? " row of "
                            : counts.empty()             ? " rows of "
                                                         : " of ",
                            name_of(shape)));
  return concat(files.size() > 1 ? concat(files.size(), " files of ") : "",
                join(containers, " and "), counts.empty() ? "" : ", ", join(counts));
}

ExampleRows read_example_rows(const std::filesystem::path& path, const ExampleFormat& format) {
  require(format.longest >= 2, "a row of examples has at least 2 tokens");
  ExampleRows examples;
  RowMaker maker(format);
  const RowSchema schema{
      .rows = "examples",
      .keys = keys_of_examples(),
      .is_closed = false,
      .renaming = columns_of(
          {.has_template = format.chat.chat_template.has_value(), .pairs = format.pairs}, "COLUMN"),
      .max_rejected = 100'000,
      .used_share = 1,
      .use = [&](const GivenRow& row) {
        add_row(row, maker.make(row.object, row.wide), format, examples);
      }};
  read_rows({path, format.columns, format.called, format.split}, schema, examples);
  check_columns(examples, format.columns, maker.findings());
  examples.findings = maker.findings();
  examples.shapes.resize(examples.files.size());
  for (const RowFile& file : examples.files)
    for (const std::string& name : file.form.unread) examples.findings.unused.try_emplace(name, 0);
  return examples;
}

std::string cut_rows_note(std::initializer_list<const std::vector<ExampleRow>*> rows,
                          std::int64_t length, const std::string& hint) {
  std::int64_t all = 0, cut = 0, left_out = 0;
  for (const auto* some : rows) {
    all += std::ssize(*some);
    for (const ExampleRow& row : *some) {
      cut += row.left_out > 0 ? 1 : 0;
      left_out += row.left_out;
    }
  }
  if (cut == 0) return "";
  return concat(cut, " of ", all, " rows are longer than ", length, " tokens and lose ", left_out,
                " tokens at their end; ", hint);
}

std::string cut_sources_note(std::initializer_list<const std::vector<ExampleRow>*> rows,
                             std::int64_t longest) {
  std::int64_t cut = 0, lost = 0;
  for (const std::vector<ExampleRow>* some : rows)
    for (const ExampleRow& row : *some) {
      cut += row.source_left_out > 0 ? 1 : 0;
      lost += row.source_left_out;
    }
  if (cut == 0) return "";
  return concat(cut, cut == 1 ? " source is" : " sources are", " longer than ", longest,
                " tokens, the encoder's maximum, and lost ", lost,
                lost == 1 ? " token at " : " tokens at ", cut == 1 ? "its end" : "their ends");
}

}  // namespace hybrid_trainer
