#pragma once

#include <boost/json.hpp>
#include <set>
#include <utility>

#include "src/files/json.h"

namespace hybrid_trainer {

/// How a template wants what may be written in several ways.
struct MessageForm {
  bool arguments_as_text = false;  // of a tool call; else the object
  bool none_beside_calls = false;  // content that is empty beside tool calls: null, else ""
  bool content_as_parts = false;   // a list with one text part; else the text
  bool wraps_calls = false;        // each call's name and arguments stand under "function"
};

/// A message of a row as templates read it, and what the row says of it.
struct NormalMessage {
  boost::json::object message;
  bool trains = true;       // "weight", "train", …
  std::string said_role{};  // the row's role, if templates have another name for it
  /// The key and what it holds, of texts that a template may leave out.
  std::vector<std::pair<std::string, std::string>> notable{};
};

/// Takes a message with role and content, or with ShareGPT's from and value. Keys that are null
/// go; a text of JSON becomes what it says; a list of text parts becomes one text; reasoning gets
/// each name by which templates read it. Adds to `unused` each key that means something elsewhere
/// and nothing here. Throws DataError "what is wrong".
NormalMessage normal_message(const boost::json::value& given, const MessageForm& form,
                             std::set<std::string>& unused);

/// Who says a message by "role" or "from", as templates name the speaker: "assistant", "user", …; "" of
/// what is no message.
std::string speaker_of(const boost::json::value& message);

/// Whether a key of a message is read everywhere, or its text is told if a template leaves it out.
bool is_of_messages(std::string_view key);

/// As Python's json.dumps.
std::string json_text(const boost::json::value& value);

/// The text that stands under a key of a row; of a number or a truth value its JSON text. Throws
/// DataError of anything else.
std::string text_in_row(const boost::json::value& value, std::string_view key);

/// What a tool or a call of one says of its function: under "function", or by itself.
boost::json::object& function_of(boost::json::object& call);
inline const boost::json::object& function_of(const boost::json::object& call) {
  return function_of(const_cast<boost::json::object&>(call));
}

/// Throws DataError where there is an integer beyond 64 bits, which no template would write as it
/// stands in the file.
void check_integers(const boost::json::value& value, const WideIntegers& wide);

/// A list of tools, from a list or its JSON text; null where there are none. Throws DataError.
boost::json::value normal_tools(const boost::json::value* given);

/// An example, whatever format its file has: a text, or a chat.
struct NormalRow {
  bool is_chat = false;
  std::string prompt, completion;  // of a text; its prompt may be empty
  boost::json::array messages;     // of a chat
  std::vector<bool> trains;        // of each message
  /// A text of a message that a template may leave out, and the key that has it.
  struct Notable {
    std::size_t message = 0;
    std::string key, text;
  };
  std::vector<Notable> notable;
  std::set<std::string> said_roles{};  // that are read as others, by capitals or a common name
  /// Of a chat in two lists: the messages of the prompt; all behind them is trained on.
  std::size_t prompt_messages = 0;
  boost::json::object variables;  // tools, documents and whatever else the row gives its template
  std::set<std::string> used;     // members of kBeside that the chat uses
  bool has_calls() const;         // of tools
};

/// Reads "text", "prompt" with "completion", or "messages", of which an example has one (see
/// shaped_row). A key that is null, or an empty list, is as absent. Adds to `unused` each key of a
/// message that means something elsewhere and nothing here. Throws DataError.
NormalRow normal_row(const boost::json::object& example, const MessageForm& form,
                     std::set<std::string>& unused);

}  // namespace hybrid_trainer
