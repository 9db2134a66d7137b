#pragma once

#include <set>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/chat/chat_template.h"
#include "src/data/tables/row_reader.h"

namespace hybrid_trainer {

/// Which keys an example has.
enum class RowShape { kText, kPair, kMessages, kShareGpt, kAlpaca, kPreference, kClip };

/// "text", "prompt and completion", "messages", "sharegpt", "alpaca", "preference", "clips".
const char* name_of(RowShape shape);

/// The keys of examples that are looked at.
const std::vector<std::string>& keys_of_examples();

/// What --columns gives questions and answers, such that a chat template writes them if there is
/// one: "instruction=COLUMN,output=COLUMN", or "prompt=COLUMN,completion=COLUMN".
std::string pair_columns(bool has_template, std::string_view column);

/// One example as tokens.
struct ExampleRow {
  std::size_t file = 0;   // in ExampleRows::files
  std::int64_t line = 0;  // of its file, from 1; of an array its place, of a table its row
  std::vector<std::int32_t> tokens{};
  std::vector<bool> learnt{};               // which tokens are targets; never the first
  std::int64_t left_out = 0;                // tokens behind the longest length
  std::int64_t answers_left_out = 0;        // answers whose tokens cannot be told, so not learnt
  std::optional<std::int32_t> end_token{};  // that ends what is learnt last
  /// Of a pair of answers: where the tokens of the rejected text begin, behind all of the chosen one;
  /// 0 of a row that is no pair.
  std::int64_t rejected_at = 0;
  std::shared_ptr<const FilePart> clip{};  // whose words the tokens are; null of a row of text
  /// What an encoder reads before the decoder writes the tokens; empty of a decoder's row.
  std::vector<std::int32_t> source{};
  std::int64_t source_left_out = 0;  // tokens of the source behind the longest length
  /// Places that it takes in a sequence: a text's last token takes none.
  std::int64_t places() const {
    return static_cast<std::int64_t>(tokens.size()) - (rejected_at > 0 ? 2 : 1);
  }
  std::int64_t targets() const;  // tokens that are learnt
};

/// Remarks on examples that are used.
struct ExampleFindings {
  /// Members of rows that take no part in training, and how many rows have each. 0: of columns that were
  /// not read.
  std::map<std::string, std::int64_t> unused{};
  std::set<std::string> unused_of_messages{};
  std::set<std::string> said_roles{};   // of messages, that are read as user, assistant or tool
  std::set<std::string> other_roles{};  // of messages, that stand for no known speaker
  std::int64_t empty_answers = 0;
  std::set<std::string> used{};  // members of rows that were used
  /// Rows of a prompt and its completion that do not go through the chat template that there is.
  std::int64_t untemplated = 0;
  /// Keys of what the chat template leaves out, and how often it does.
  std::map<std::string, std::int64_t> unwritten{};
  /// Texts after the last answer that are no special token, and how many chats end with each.
  std::map<std::string, std::int64_t> loose_ends{};
};

/// Two answers to one prompt: one that is preferred to the other. Both have the prompt's tokens, and
/// the answers alone are learnt.
struct PreferencePair {
  ExampleRow chosen, rejected;
  /// The columns by which the chosen answers alone are learnt; "" where none do that.
  std::string chosen_columns{};
};

/// Contents of files of examples: each of their lines is in one of the lists, in order.
struct ExampleRows : ReadRows {
  using Shapes = std::map<RowShape, std::int64_t>;
  std::vector<ExampleRow> rows{};
  std::vector<PreferencePair> pairs{};
  ExampleFindings findings{};
  std::vector<Shapes> shapes{};  // by file: how many of the lines that are used have each

  /// "CSV, 3 rows of messages and 1 of text"; of several files also how many.
  std::string form() const;
  /// One line for each kind of text that is in the examples and not trained on; refusals are not
  /// among them.
  std::vector<std::string> notes() const;
  /// Why files of which most lines are refused are not trained on; "" if fewer are.
  std::string mostly_refused() const;
};

/// How a prompt and its completion become what an encoder reads and what its decoder writes.
struct SourceFormat {
  std::int32_t start = 0;  // decoder_start_token_id, with which what is written begins
  std::int64_t longest =
      1024;  // most tokens of a source; it keeps its start, and the token that ends it
};

/// Ends a line on rows that are too long, if the sequence is as long as the model's context.
inline constexpr const char* kContextIsFull = "the model's context has no more";

/// Settings that turn examples into rows; must outlive nothing but the call.
struct ExampleFormat {
  const Tokenizer& tokenizer;
  const ChatFiles& chat;
  /// Most tokens of a row; it keeps its start.
  std::int64_t longest = 1024;
  std::time_t now = 0;  // what a template takes for the time
  /// Tokens of the model, 0 where it is not known; a row with another token is refused.
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;  // most tokens of a sequence, 0 if it is not known
  /// What texts, prompts and completions make of a special token that they spell. Chats have their
  /// tokens.
  ControlText control = ControlText::kAsTokens;
  ColumnNames columns{};                 // by which examples are read
  std::string called{};                  // the file's name in messages, where that is not its path
  bool pairs = false;                    // rows are pairs of answers (objective dpo or orpo)
  RowSplit split = RowSplit::kTrain;     // of a folder, the files that are read
  std::optional<SourceFormat> source{};  // rows are of an encoder and its decoder
};

/// "3 sources are longer than 64 tokens, …": how many were cut and what they lost; empty where none was.
std::string told_of_cut_sources(std::initializer_list<const std::vector<ExampleRow>*> rows,
                                std::int64_t longest);

/// Reads a file of examples, or the files of a folder in order of their names (row_files,
/// visit_rows). An example is one of
///   {"text": …}                       all of it is learnt
///   {"prompt": …, "completion": …}    texts or lists of messages; the completion is learnt. The
///                                     prompt may be "messages" or "conversations" without an answer
///   {"messages": […]}                 what the assistant says is learnt
///   {"conversations": […]}, {"instruction": …, "input": …, "output": …}    read as messages
///   {"prompt": …, "chosen": …, "rejected": …}    a pair; both answers are learnt, in one row where
///                                     format.pairs asks for them
/// with "tools" and "chat_template_kwargs" beside messages; src/data/examples/shaped_row.h converts
/// them. Texts and prompts begin with Tokenizer::template_start, where they do not spell it; texts and
/// completions end with the end-of-text token, which is added where it is missing; messages end as
/// their template ends them. With format.source a row is a text's prompt, which the encoder reads, and its
/// completion behind the start token, which is learnt; other rows are refused. What an assistant says is found in the text of the whole chat
/// (src/data/examples/row_tokens.h); what cannot be found is left out. A row is refused when nothing in
/// it is learnt, or nothing within the longest length. Empty lines count, but are no examples. Throws
/// MissingInput, DataError where a file is no text, there are no examples, or most of very many lines
/// are refused, or a column that format.columns names has no effect on any row; ConfigError where it
/// names what no example has, IoError.
ExampleRows read_example_rows(const std::filesystem::path& path, const ExampleFormat& format);

/// "3 rows are longer than 64 tokens, …": how many rows were cut and what they lost; empty where none
/// was. `length`: of a sequence; `way_out`: what makes it longer, or kContextIsFull.
std::string told_of_cut(std::initializer_list<const std::vector<ExampleRow>*> rows,
                        std::int64_t length, const std::string& way_out);

/// Whether text that spells the token is the token only where special tokens are meant.
bool is_special_token(const Tokenizer& tokenizer, std::int32_t id);
/// Whether the token stands for white space alone.
bool is_blank_token(const Tokenizer& tokenizer, std::int32_t id);

/// The tokens that end what rows teach to write (ExampleRow::end_token), in increasing order;
/// without those behind which a row teaches to go on, as behind the end of a chain of thought.
std::vector<std::int32_t> end_tokens_of(std::span<const ExampleRow> rows,
                                        const Tokenizer& tokenizer);

/// A pair of answers as one row: the tokens of the chosen text and behind them those of the rejected
/// one. Throws DataError where both have the same tokens, or do not fit format.longest together.
ExampleRow pair_row(ExampleRow chosen, const ExampleRow& rejected, const ExampleFormat& format);

}  // namespace hybrid_trainer
