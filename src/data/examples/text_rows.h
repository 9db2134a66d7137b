#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/chat/chat_template.h"
#include "src/data/examples/class_labels.h"
#include "src/data/tables/row_reader.h"

namespace hybrid_trainer {

enum class TextTask { kClassify, kEmbed, kRank, kReward };
const char* name_of(TextTask task);

struct TextRow {
  std::size_t file = 0;  // index in ReadRows::files
  /// Line of the file, element of the array or row of the table, counted from 1.
  std::int64_t line = 0;
  std::vector<std::int32_t> tokens{};         // tokens of all texts, concatenated
  std::vector<std::int32_t> types{};          // type of each token
  std::vector<std::int64_t> ends{};           // end of each text in `tokens`
  std::optional<std::int32_t> class_index{};  // set for an example with one class
  std::vector<float> labels{};                // 0 or 1 for each class, or a single number
};

struct TextFormat {
  TextTask task;
  const Tokenizer& tokenizer;
  std::int64_t sequence_length = 512;  // T: the texts of an example have at most T tokens in total
  /// Maximum tokens of a text or of a pair of texts; longer texts are truncated.
  std::int64_t longest = 512;
  std::int64_t vocabulary = 0;                   // size of the model's vocabulary; 0 if unknown
  ControlText control = ControlText::kAsTokens;  // treatment of text that spells a special token
  bool needs_labels = true;                // false: a row may lack a label, or have only one text
  std::optional<LabelKind> label_kind{};   // for classify; nullopt: determined from the data
  std::vector<std::string> class_names{};  // for classify; empty: determined from the data
  ScoreRange scores{};                     // range of scores, for embed and rank
  /// Beginning of each role's texts, for embed; the last one is also used for further roles.
  std::vector<std::string> prompts{};
  const ChatFiles* chat = nullptr;  // for reward: renders messages
  std::time_t now = 0;              // current time for a chat template
  ColumnNames columns{};
  std::string called{};               // the file's name in messages; empty for its path
  RowSplit split = RowSplit::kTrain;  // the files of a folder to read
};

struct TextRows : ReadRows {
  std::vector<TextRow> rows{};
  LabelKind label_kind = LabelKind::kSingle;  // classify
  std::vector<std::string> class_names{};     // classify
  std::vector<std::string> notes{};           // notes on truncated texts and unused parts of rows
  /// Returns the number of label values of each row. Returns 0 if rows have a class or no labels.
  std::int64_t labels() const;
};

/// Reads a file of texts, or the files of a folder sorted by name (row_files, visit_rows). A row of
///   classify  {"text": …, "label": …}, also with "text_pair"; the texts of a pair may be
///             "sentence1" and "sentence2", or "premise" and "hypothesis", and a text "sentence".
///             ClassLabels lists the forms of labels
///   embed     {"anchor": …, "positive": …}, {"query": …, "positive": …} or
///             {"question": …, "answer": …}, also with "negative", "negative_1", … or the list
///             "negatives"; or {"sentence1": …, "sentence2": …} or {"a": …, "b": …}, also with
///             "score", which all rows have or none
///   rank {"query": …, "passage": …, "label": …}; or lists "passages" and "labels", with one
///   example per passage. The texts may be "sentence1" and "sentence2", or "text" and "text_pair"
///   reward    {"prompt": …, "chosen": …, "rejected": …} in each form of read_example_rows
/// "labels", "score" and "scores" mean the same as "label". A classify or rank example is a text or
/// a pair of texts; an embed or reward example has one text for each role. A row is rejected if a
/// text is empty, a label is invalid, or the texts do not fit in a sequence. Throws DataError if
/// there are no rows, if the first 1,000 rows are all rejected, or if all examples have the same
/// class. Also throws MissingInput and IoError.
TextRows read_text_rows(const std::filesystem::path& path, const TextFormat& format);

}  // namespace hybrid_trainer
