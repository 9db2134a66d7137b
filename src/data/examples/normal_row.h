#pragma once

#include <boost/json.hpp>
#include <set>
#include <utility>

#include "src/files/json.h"

namespace hybrid_trainer {

/// Form in which a template expects messages, if there are alternatives.
struct MessageForm {
  bool arguments_as_text = false;        // of a tool call; false: as an object
  bool null_content_with_calls = false;  // empty content next to tool calls is null; false: ""
  bool content_as_parts = false;         // a list with one text part; false: the text
  bool wraps_calls = false;              // each call's name and arguments are under "function"
};

/// A message of a row in the form that templates read, with the row's settings for it.
struct NormalMessage {
  boost::json::object message;
  bool trains = true;           // set by "weight", "train", …
  std::string original_role{};  // role in the row, if templates use another name
  /// Key and content of texts that a template may leave out.
  std::vector<std::pair<std::string, std::string>> optional_texts{};
};

/// Normalizes a message with role and content, or with ShareGPT's from and value. Removes null
/// keys, parses JSON texts, joins text parts, and copies reasoning to each key that templates read.
/// Adds to `unused` each key that has a meaning in other programs but not here. Throws DataError
/// with the problem, without its location.
NormalMessage normal_message(const boost::json::value& given, const MessageForm& form,
                             std::set<std::string>& unused);

/// Returns the speaker of a message from its "role" or "from", under the name that templates use:
/// "assistant", "user", …; "" if the value is not a message.
std::string speaker_of(const boost::json::value& message);

/// Returns whether a message key is always read, or is reported if a template leaves it out.
bool is_message_key(std::string_view key);

/// Serializes like Python's json.dumps.
std::string json_text(const boost::json::value& value);

/// Returns a text, or a number or Boolean as JSON text. Throws DataError naming `key` otherwise.
std::string text_in_row(const boost::json::value& value, std::string_view key);

/// Returns the function of a tool or tool call: the member "function", or the object itself.
boost::json::object& function_of(boost::json::object& call);
inline const boost::json::object& function_of(const boost::json::object& call) {
  return function_of(const_cast<boost::json::object&>(call));
}

/// Throws DataError for an integer beyond 64 bits, which no template would write unchanged.
void check_integers(const boost::json::value& value, const WideIntegers& wide);

/// Normalizes a list of tools, or its JSON text. Returns null without tools. Throws DataError.
boost::json::value normal_tools(const boost::json::value* given);

/// An example in a common format: a text, or a chat.
struct NormalRow {
  bool is_chat = false;
  std::string prompt, completion;  // of a text; the prompt may be empty
  boost::json::array messages;     // of a chat
  std::vector<bool> trains;        // for each message
  /// A text of a message that a template may leave out, with its key.
  struct OptionalText {
    std::size_t message = 0;
    std::string key, text;
  };
  std::vector<OptionalText> optional_texts;
  std::set<std::string> original_roles{};  // mapped to other roles because of capitals or synonyms
  /// Number of prompt messages in a chat of prompt and completion; the completion's are targets.
  std::size_t prompt_messages = 0;
  boost::json::object variables;  // tools, documents and other template variables of the row
  std::set<std::string> used;     // members of kContextKeys that the chat uses
  bool has_calls() const;         // whether there are tool calls
};

/// Reads an example with "text", with "prompt" and "completion", or with "messages" (see
/// shaped_row). Null and empty lists count as absent. Adds to `unused` each key of a message that
/// has a meaning in other programs but not here. Throws DataError.
NormalRow normal_row(const boost::json::object& example, const MessageForm& form,
                     std::set<std::string>& unused);

}  // namespace hybrid_trainer
