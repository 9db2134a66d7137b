#pragma once

#include <set>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/chat/chat_template.h"
#include "src/data/tables/row_reader.h"

namespace hybrid_trainer {

/// Shape of an example, determined by its keys.
enum class RowShape { kText, kPair, kMessages, kShareGpt, kAlpaca, kPreference, kClip };

/// Returns a name such as "prompt and completion" or "clips".
const char* name_of(RowShape shape);

const std::vector<std::string>& keys_of_examples();

/// Returns suggested --columns for questions and answers: "instruction=COLUMN,output=COLUMN" if a
/// chat template applies, otherwise "prompt=COLUMN,completion=COLUMN".
std::string pair_columns(bool has_template, std::string_view column);

struct ExampleRow {
  std::size_t file = 0;  // index in ExampleRows::files
  /// Line of the file, element of the array or row of the table, counted from 1.
  std::int64_t line = 0;
  std::vector<std::int32_t> tokens{};
  std::vector<bool> is_target{};      // whether each token is a target; false for the first token
  std::int64_t left_out = 0;          // number of truncated tokens
  std::int64_t answers_left_out = 0;  // answers without targets, because their tokens are unknown
  std::optional<std::int32_t> end_token{};  // ends the last target
  /// Index of the rejected text's first token in a preference pair; 0 for other rows.
  std::int64_t rejected_at = 0;
  std::shared_ptr<const FilePart> clip{};  // clip that the tokens transcribe; null for a text row
  /// Tokens of the encoder's input; empty for a decoder-only model.
  std::vector<std::int32_t> source{};
  std::int64_t source_left_out = 0;  // truncated tokens of the source
  /// Returns the number of sequence positions that the row fills: one per token except the last
  /// token of each text.
  std::int64_t places() const {
    return static_cast<std::int64_t>(tokens.size()) - (rejected_at > 0 ? 2 : 1);
  }
  std::int64_t targets() const;  // number of target tokens
};

struct ExampleFindings {
  /// Number of rows with each unused member; 0 for columns that were not read.
  std::map<std::string, std::int64_t> unused{};
  std::set<std::string> unused_of_messages{};
  /// Roles of messages before they were mapped to user, assistant or tool.
  std::set<std::string> original_roles{};
  std::set<std::string> other_roles{};  // unknown roles of messages
  std::int64_t empty_answers = 0;
  std::set<std::string> used{};  // used members of rows
  /// Number of rows with prompt and completion that do not use the existing chat template.
  std::int64_t without_template = 0;
  /// Keys of content that the chat template omits, and their numbers of occurrences.
  std::map<std::string, std::int64_t> omitted{};
  /// Texts that follow the last answer and have no special token, and the number of chats that end
  /// with each text.
  std::map<std::string, std::int64_t> untokenized_endings{};
};

struct PreferencePair {
  ExampleRow chosen, rejected;
  /// Value of --columns to train only on the chosen answers; "" if there is none.
  std::string chosen_columns{};
};

/// Contents of example files. Each line is in exactly one of the lists, in the file's order.
struct ExampleRows : ReadRows {
  using Shapes = std::map<RowShape, std::int64_t>;
  std::vector<ExampleRow> rows{};
  std::vector<PreferencePair> pairs{};
  ExampleFindings findings{};
  std::vector<Shapes> shapes{};  // number of used lines of each shape, for each file

  /// Returns a description such as "CSV, 3 rows of messages and 1 of text".
  std::string form() const;
  /// Returns one line for each kind of text that is not trained on, except for rejected rows.
  std::vector<std::string> notes() const;
  /// Returns a warning about files whose lines are mostly rejected, or "".
  std::string mostly_rejected_warning() const;
};

/// Settings for an encoder-decoder: the prompt is the encoder's input, the completion the target.
struct SourceFormat {
  std::int32_t start = 0;  // decoder_start_token_id, the first token of the target
  std::int64_t longest =
      1024;  // maximum tokens of a source; truncation keeps the beginning and the end token
};

/// Ends a message about too long rows if no setting can increase the length.
inline constexpr const char* kContextIsFull = "the model's context is not longer";

struct ExampleFormat {
  const Tokenizer& tokenizer;
  const ChatFiles& chat;
  /// Maximum tokens of a row; truncation keeps the beginning.
  std::int64_t longest = 1024;
  std::time_t now = 0;  // current time for a template
  /// Size of the model's vocabulary, or 0 if unknown. Rejects rows with a token outside it.
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;  // maximum tokens of a sequence, 0 if unknown
  /// Treatment of text that spells a special token. In chats it always becomes the token.
  ControlText control = ControlText::kAsTokens;
  ColumnNames columns{};                 // used to read the examples
  std::string called{};                  // name of the file in messages; empty for its path
  bool pairs = false;                    // rows are preference pairs (objective dpo or orpo)
  RowSplit split = RowSplit::kTrain;     // the files of a folder to read
  std::optional<SourceFormat> source{};  // for an encoder-decoder
};

/// Returns "3 sources are longer than 64 tokens, …", or "" if no source is truncated.
std::string cut_sources_note(std::initializer_list<const std::vector<ExampleRow>*> rows,
                             std::int64_t longest);

/// Reads a file of examples, or the files of a folder sorted by name (row_files, visit_rows). An
/// example is one of
///   {"text": …}                       all of it is a target
///   {"prompt": …, "completion": …}    texts or lists of messages; the completion is the target. The
///                                     prompt may be "messages" or "conversations" without an answer
///   {"messages": […]}                 the assistant's messages are targets
///   {"conversations": […]}, {"instruction": …, "input": …, "output": …}    read as messages
///   {"prompt": …, "chosen": …, "rejected": …}    a pair; both answers are targets, in one row if
///                                     format.pairs is set
/// with optional "tools" and "chat_template_kwargs" next to messages; see shaped_row.h. Texts and
/// prompts begin with Tokenizer::template_start, which is added unless they spell it. Texts and
/// completions end with the end-of-text token, messages with the text that their template writes.
/// A prompt becomes the encoder's input if format.source is set, and the start token and the
/// completion become the target; other rows are rejected. The assistant's messages are located in the text of
/// the whole chat (row_tokens.h). Messages that are not found are not targets. A row is rejected if
/// it has no target within the maximum length. Throws DataError if a file is not text, if there are
/// no examples, if most of very many lines are rejected, or if a column of format.columns has no
/// effect. Throws ConfigError if no example has a name in format.columns. Also throws MissingInput
/// and IoError.
ExampleRows read_example_rows(const std::filesystem::path& path, const ExampleFormat& format);

/// Returns "3 rows are longer than 64 tokens, …", or "" if no row is truncated. `hint` is the
/// setting that increases `length`, the length of a sequence, or kContextIsFull.
std::string cut_rows_note(std::initializer_list<const std::vector<ExampleRow>*> rows,
                          std::int64_t length, const std::string& hint);

/// Returns whether the token is special: text that spells it becomes the token only if special
/// tokens are enabled.
bool is_special_token(const Tokenizer& tokenizer, std::int32_t id);
bool is_blank_token(const Tokenizer& tokenizer, std::int32_t id);

/// Returns the tokens that end targets (ExampleRow::end_token), in ascending order. Excludes tokens
/// that also occur within targets, such as the end of a chain of thought.
std::vector<std::int32_t> end_tokens_of(std::span<const ExampleRow> rows,
                                        const Tokenizer& tokenizer);

/// Joins a pair into one row: the chosen text's tokens, then the rejected text's. Throws DataError
/// if both are equal, or do not fit together in a row of format.longest tokens.
ExampleRow pair_row(ExampleRow chosen, const ExampleRow& rejected, const ExampleFormat& format);

}  // namespace hybrid_trainer
