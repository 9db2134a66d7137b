#pragma once

#include <ctime>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/chat/chat_template.h"
#include "src/data/examples/class_labels.h"
#include "src/data/tables/row_reader.h"

namespace hybrid_trainer {

/// Tasks that train on vectors of texts.
enum class TextTask { kClassify, kEmbed, kRank, kReward };
/// Returns "classify", "embed", "rank" or "reward".
const char* name_of(TextTask task);

/// The texts of an example, as tokens.
struct TextRow {
  std::size_t file = 0;   // index in ReadRows::files
  std::int64_t line = 0;  // line of its file, element of its array or row of its table, from 1
  std::vector<std::int32_t> tokens{};         // of all texts, one after the other
  std::vector<std::int32_t> types{};          // by token
  std::vector<std::int64_t> ends{};           // end of each text in `tokens`
  std::optional<std::int32_t> class_index{};  // of an example with one class
  std::vector<float> labels{};                // 0 or 1 for each class, or one number
};

/// Settings for reading texts; need not outlive the call.
struct TextFormat {
  TextTask task;
  const Tokenizer& tokenizer;
  std::int64_t sequence_length = 512;  // T: an example's texts have at most T tokens in all
  std::int64_t longest = 512;          // tokens of a text or of a pair of texts; truncates more
  std::int64_t vocabulary = 0;         // size of the model's; 0: unknown
  ControlText control = ControlText::kAsTokens;  // text that spells a special token
  bool needs_labels = true;                // false: a row may be without a label, or have one text
  std::optional<LabelKind> label_kind{};   // classify; none: determined by the data
  std::vector<std::string> class_names{};  // classify; empty: determined by the data
  ScoreRange scores{};                     // embed and rank
  /// Beginning of the texts of each role (embed); the last one also for all further roles.
  std::vector<std::string> prompts{};
  const ChatFiles* chat = nullptr;  // reward: renders messages
  std::time_t now = 0;              // current time for a chat template
  ColumnNames columns{};
  std::string called{};               // the file's name in messages, if not its path
  RowSplit split = RowSplit::kTrain;  // the files of a folder to read
};

/// Contents of files of texts.
struct TextRows : ReadRows {
  std::vector<TextRow> rows{};
  LabelKind label_kind = LabelKind::kSingle;  // classify
  std::vector<std::string> class_names{};     // classify
  std::vector<std::string> notes{};           // on truncated texts and unused parts of rows
  /// Numbers in the labels of each row; 0 if it has none, or a class.
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
///   rank      {"query": …, "passage": …, "label": …}; or lists "passages" and "labels", an example
///             each. The texts may be "sentence1" and "sentence2", or "text" and "text_pair"
///   reward    {"prompt": …, "chosen": …, "rejected": …} in each form of read_example_rows
/// "labels", "score" and "scores" mean the same as "label". A classify or rank example is one text
/// or pair of texts; an embed or reward example has one text for each role. A row is
/// refused if a text is empty or the texts do not fit a sequence, or for an invalid label. Throws
/// MissingInput; DataError if there are no rows, the first 1,000 are all refused, or all examples
/// have the same class; IoError.
TextRows read_text_rows(const std::filesystem::path& path, const TextFormat& format);

}  // namespace hybrid_trainer
