#pragma once

#include <boost/json.hpp>
#include <set>
#include <utility>

#include "src/files/json.h"

namespace hybrid_trainer {

struct MessageForm {
  /// True if the arguments of a tool call are a text, false for an object.
  bool arguments_as_text = false;
  /// True if empty content next to tool calls is null, false for "".
  bool null_content_with_calls = false;
  /// True if content is a list with one text part, false for a text.
  bool content_as_parts = false;
  /// True if the name and arguments of a call are in "function".
  bool wraps_calls = false;
};

/// A message of a row in the form that templates read, with the message's training settings.
struct NormalMessage {
  boost::json::object message;
  bool trains = true;           // set by "weight", "train", …
  std::string original_role{};  // role in the row, if templates use a different name
  /// Keys and contents of texts that a template may omit.
  std::vector<std::pair<std::string, std::string>> optional_texts{};
};

/// Normalizes a message with role and content, or with ShareGPT's from and value: parses JSON
/// texts, joins text parts, copies the reasoning to each key that templates read. Adds ignored keys
/// of other programs to `unused`. Throws DataError with the problem but without its location.
NormalMessage normal_message(const boost::json::value& given, const MessageForm& form,
                             std::set<std::string>& unused);

/// Returns the speaker as templates name it ("assistant", "user", …), or "" for other values.
std::string speaker_of(const boost::json::value& message);

/// Returns whether the key of a message is handled: always read, or reported if a template omits
/// it.
bool is_message_key(std::string_view key);

/// Serializes like Python's json.dumps.
std::string json_text(const boost::json::value& value);

/// Returns a text, or a number or Boolean as JSON. Throws DataError naming `key` for other values.
std::string text_in_row(const boost::json::value& value, std::string_view key);

/// Returns the function of a tool or tool call: the member "function", or the object itself.
boost::json::object& function_of(boost::json::object& call);
inline const boost::json::object& function_of(const boost::json::object& call) {
  return function_of(const_cast<boost::json::object&>(call));
}

/// Throws DataError for an integer of more than 64 bits, which templates cannot write unchanged.
void check_integers(const boost::json::value& value, const WideIntegers& wide);

/// Normalizes a list of tools, or its JSON text; null without tools. Throws DataError.
boost::json::value normal_tools(const boost::json::value* given);

struct NormalRow {
  bool is_chat = false;
  std::string prompt, completion;  // set for a text; the prompt may be empty
  boost::json::array messages;     // set for a chat
  std::vector<bool> trains;        // whether each message is trained on
  struct OptionalText {
    std::size_t message = 0;
    std::string key, text;
  };
  std::vector<OptionalText> optional_texts;
  std::set<std::string> original_roles{};  // roles in the row that differ from the templates' names
  /// Number of prompt messages in a chat; the completion's messages are targets.
  std::size_t prompt_messages = 0;
  boost::json::object variables;  // tools, documents and other template variables of the row
  std::set<std::string> used;     // members of kContextKeys that the chat uses
  bool has_calls() const;         // whether there are tool calls
};

/// Reads an example with "text", with "prompt" and "completion", or with "messages" (see
/// shaped_row). Null and empty lists count as absent. Adds to `unused` each key of a message that
/// other programs use but this program ignores. Throws DataError.
NormalRow normal_row(const boost::json::object& example, const MessageForm& form,
                     std::set<std::string>& unused);

}  // namespace hybrid_trainer
