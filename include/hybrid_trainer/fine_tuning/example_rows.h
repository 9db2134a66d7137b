#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hybrid_trainer/chat/chat_template.h"
#include "hybrid_trainer/data/tokenizer.h"

namespace hybrid_trainer {

/// One example as tokens.
struct ExampleRow {
  std::int64_t line = 0;  // of its file, from 1; of an array its place
  std::vector<std::int32_t> tokens{};
  std::vector<bool> learnt{};               // which tokens are targets; never the first
  std::int64_t left_out = 0;                // tokens behind the longest length
  std::int64_t answers_left_out = 0;        // answers whose tokens cannot be told, so not learnt
  std::optional<std::int32_t> end_token{};  // that ends what is learnt last
  /// Of a pair of answers: where the tokens of the rejected text begin, behind all of the chosen one;
  /// 0 of a row that is no pair.
  std::int64_t rejected_at = 0;
  /// Places that it takes in a sequence: a text's last token takes none.
  std::int64_t places() const {
    return static_cast<std::int64_t>(tokens.size()) - (rejected_at > 0 ? 2 : 1);
  }
  std::int64_t targets() const;  // tokens that are learnt
};

/// Remarks on examples that are used.
struct ExampleFindings {
  std::set<std::string> unused_keys{};  // that mean something elsewhere, and nothing here
  /// Keys of what the chat template leaves out, and how often it does.
  std::map<std::string, std::int64_t> unwritten{};
  /// Texts after the last answer that are no special token, and how many chats end with each.
  std::map<std::string, std::int64_t> loose_ends{};
};

/// Contents of a file of examples: each of its lines is in one of the two lists, in order.
struct ExampleRows {
  struct Refusal {
    std::int64_t line = 0;
    std::string reason;
  };
  std::vector<ExampleRow> rows;
  std::vector<Refusal> refused;
  ExampleFindings findings;
  bool are_of_array = false;  // whose elements count as lines
  std::string array_key;      // under which the file's one object has that array

  /// One line for each kind of text that is in the examples and not trained on; refusals are not
  /// among them.
  std::vector<std::string> notes() const;
};

/// Settings that turn examples into rows; must outlive nothing but the call.
struct ExampleFormat {
  const Tokenizer& tokenizer;
  const ChatFiles& chat;
  /// Most tokens of a row; it keeps its start.
  std::int64_t longest = 1024;
  std::time_t now = 0;  // what a template takes for the time
  /// Tokens of the model, 0 where it is not known; a row with another token is refused.
  std::int64_t vocabulary = 0;
  /// What texts, prompts and completions make of a special token that they spell. Chats have their
  /// tokens.
  ControlText control = ControlText::kAsTokens;
  bool pairs = false;  // rows are pairs of answers (objective dpo or orpo)
};

/// Reads examples, JSON objects one a line or in one array, which count as its lines. The array may
/// stand under a key of one object; objects may go over several lines. An object is one of
///   {"text": …}                       all of it is learnt
///   {"prompt": …, "completion": …}    texts or lists of messages; the completion is learnt
///   {"messages": […]}                 what the assistant says is learnt
///   {"conversations": […]}, {"instruction": …, "input": …, "output": …}    read as messages
/// and, where they are wanted, pairs of answers (src/fine_tuning/preference_rows.h):
///   {"prompt": …, "chosen": …, "rejected": …}    texts or lists of messages; both answers are learnt
/// with "tools" and "chat_template_kwargs" beside messages. Texts and prompts begin with
/// Tokenizer::template_start, where they do not spell it; texts and completions end with the
/// end-of-text token, which is added where it is missing; messages end as their template ends them.
/// What an assistant says is found in the text of the whole chat (src/fine_tuning/chat_rows.h); what
/// cannot be found is left out. A row is refused when nothing in it is learnt, or nothing within
/// the longest length. Empty lines count, but are no examples. Throws MissingInput, DataError where
/// the file is no text, holds no examples, or most of very many lines are refused, IoError.
ExampleRows read_example_rows(const std::filesystem::path& path, const ExampleFormat& format);

}  // namespace hybrid_trainer
