#pragma once

#include <boost/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "src/fine_tuning/normal_message.h"

namespace hybrid_trainer {

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
