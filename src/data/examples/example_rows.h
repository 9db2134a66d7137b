#pragma once

#include <set>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/chat/chat_template.h"
#include "src/data/tables/row_reader.h"

namespace hybrid_trainer {

/// Shape of an example, determined by its keys.
enum class RowShape { kText, kPair, kMessages, kShareGpt, kAlpaca, kPreference, kClip };

/// Returns "text", "prompt and completion", "messages", "sharegpt", "alpaca", "preference" or
/// "clips".
const char* name_of(RowShape shape);

/// Returns the keys of examples that are read.
const std::vector<std::string>& keys_of_examples();

/// Returns suggested --columns for questions and answers: "instruction=COLUMN,output=COLUMN" if
/// there is a chat template, so that it applies, else "prompt=COLUMN,completion=COLUMN".
std::string pair_columns(bool has_template, std::string_view column);

/// An example as tokens.
struct ExampleRow {
  std::size_t file = 0;   // index in ExampleRows::files
  std::int64_t line = 0;  // line of its file, element of its array or row of its table, from 1
  std::vector<std::int32_t> tokens{};
  std::vector<bool> is_target{};      // which tokens are targets; never the first
  std::int64_t left_out = 0;          // number of truncated tokens
  std::int64_t answers_left_out = 0;  // answers without targets, since their tokens are unknown
  std::optional<std::int32_t> end_token{};  // ends the last target
  /// Index of the first token of the rejected text in a preference pair, after all tokens of the
  /// chosen one; 0 for a row that is not a pair.
  std::int64_t rejected_at = 0;
  std::shared_ptr<const FilePart> clip{};  // clip that the tokens transcribe; null for a text row
  /// Encoder input; empty for a decoder-only row.
  std::vector<std::int32_t> source{};
  std::int64_t source_left_out = 0;  // truncated tokens of the source
  /// Returns the row's places in a sequence: all tokens except the last of each text.
  std::int64_t places() const {
    return static_cast<std::int64_t>(tokens.size()) - (rejected_at > 0 ? 2 : 1);
  }
  std::int64_t targets() const;  // number of target tokens
};

/// Findings about used examples.
struct ExampleFindings {
  /// Number of rows with each unused member; 0 for columns that were not read.
  std::map<std::string, std::int64_t> unused{};
  std::set<std::string> unused_of_messages{};
  std::set<std::string> original_roles{};  // of messages, before mapping to user, assistant or tool
  std::set<std::string> other_roles{};     // unknown roles of messages
  std::int64_t empty_answers = 0;
  std::set<std::string> used{};  // used members of rows
  /// Number of rows with prompt and completion that do not use the existing chat template.
  std::int64_t without_template = 0;
  /// Keys of content that the chat template leaves out, with the number of occurrences.
  std::map<std::string, std::int64_t> omitted{};
  /// Texts after last answers that contain no special token, with the number of chats of each.
  std::map<std::string, std::int64_t> untokenized_endings{};
};

/// A preferred and a rejected answer to the same prompt. Only the answers are targets.
struct PreferencePair {
  ExampleRow chosen, rejected;
  /// The --columns that train only on the chosen answers; "" if there are none.
  std::string chosen_columns{};
};

/// Contents of example files. Each line is in one of the lists, in order.
struct ExampleRows : ReadRows {
  using Shapes = std::map<RowShape, std::int64_t>;
  std::vector<ExampleRow> rows{};
  std::vector<PreferencePair> pairs{};
  ExampleFindings findings{};
  std::vector<Shapes> shapes{};  // by file: number of used lines of each shape

  /// Returns "CSV, 3 rows of messages and 1 of text"; for several files also their number.
  std::string form() const;
  /// Returns one line per kind of text that is not trained on, except refusals.
  std::vector<std::string> notes() const;
  /// Returns a warning that files with mostly refused lines are unusable; "" if fewer are refused.
  std::string mostly_rejected_warning() const;
};

/// Settings for an encoder-decoder: a prompt becomes its input, the completion the target.
struct SourceFormat {
  std::int32_t start = 0;  // decoder_start_token_id, the first token of the target
  std::int64_t longest =
      1024;  // maximum tokens of a source; truncation keeps the beginning and the end token
};

/// Ending of a message about rows that are too long, if no setting can increase the length.
inline constexpr const char* kContextIsFull = "the model's context is not longer";

/// Settings for turning examples into rows; need not outlive the call.
struct ExampleFormat {
  const Tokenizer& tokenizer;
  const ChatFiles& chat;
  /// Maximum tokens of a row; truncation keeps the beginning.
  std::int64_t longest = 1024;
  std::time_t now = 0;  // current time for a template
  /// Size of the model's vocabulary, 0 if unknown. A row with a token outside of it is refused.
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;  // maximum tokens of a sequence, 0 if unknown
  /// Whether text that spells a special token becomes the token. In chats it always does.
  ControlText control = ControlText::kAsTokens;
  ColumnNames columns{};                 // used to read the examples
  std::string called{};                  // name of the file in messages; empty: its path
  bool pairs = false;                    // rows are preference pairs (objective dpo or orpo)
  RowSplit split = RowSplit::kTrain;     // the files of a folder to read
  std::optional<SourceFormat> source{};  // for an encoder-decoder
};

/// Returns "3 sources are longer than 64 tokens, …" with the lost tokens; "" if none is truncated.
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
/// with optional "tools" and "chat_template_kwargs" next to messages. See
/// src/data/examples/shaped_row.h for the conversion of these shapes. Texts and prompts begin with
/// Tokenizer::template_start, unless they spell it. Texts and completions end with the end-of-text
/// token, which is added if missing; messages end as their template ends them. With format.source,
/// a prompt becomes the encoder input, and the completion after the start token the target; other
/// rows are refused. The assistant's messages are located in the text of the whole chat
/// (src/data/examples/row_tokens.h) and left out if they are not found. A row is refused if it has
/// no target, or none within the longest length. Empty lines are counted, but are not examples.
/// Throws MissingInput; DataError if a file is not text, there are no examples, most of very many
/// lines are refused, or a column of format.columns has no effect on any row; ConfigError if
/// format.columns has a name that no example has; IoError.
ExampleRows read_example_rows(const std::filesystem::path& path, const ExampleFormat& format);

/// Returns "3 rows are longer than 64 tokens, …" with the lost tokens; "" if none is truncated.
/// `length` is a sequence's length, and `hint` the setting that increases it, or kContextIsFull.
std::string cut_rows_note(std::initializer_list<const std::vector<ExampleRow>*> rows,
                          std::int64_t length, const std::string& hint);

/// Returns whether the token is special: text that spells it becomes the token only if special
/// tokens are enabled.
bool is_special_token(const Tokenizer& tokenizer, std::int32_t id);
bool is_blank_token(const Tokenizer& tokenizer, std::int32_t id);

/// Returns the tokens that end targets (ExampleRow::end_token), in ascending order. Leaves out
/// tokens after which a target continues, such as the end of a chain of thought.
std::vector<std::int32_t> end_tokens_of(std::span<const ExampleRow> rows,
                                        const Tokenizer& tokenizer);

/// Joins a pair of answers into one row: the tokens of the chosen text, then of the rejected
/// text. Throws DataError if both have the same tokens or do not fit format.longest together.
ExampleRow pair_row(ExampleRow chosen, const ExampleRow& rejected, const ExampleFormat& format);

}  // namespace hybrid_trainer
