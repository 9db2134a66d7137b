#pragma once

#include <boost/json.hpp>
#include <map>
#include <optional>
#include <string>

#include "hybrid_trainer/fine_tuning/example_rows.h"
#include "src/fine_tuning/normal_row.h"

namespace hybrid_trainer {

/// The template for chats with these variables, which say whether there are tools.
const ChatTemplate& template_of(const ExampleFormat& format, const boost::json::object& variables);
/// Throws DataError where the template refuses it.
RenderedChat rendered(const ExampleFormat& format, const boost::json::object& variables,
                      boost::json::array messages, bool add_generation_prompt);
/// The first so many messages of a row.
boost::json::array first_messages(const NormalRow& row, std::size_t count);

/// What the template writes to ask for the messages of a row.
class GenerationPrompts {
 public:
  GenerationPrompts(const ExampleFormat& format, const NormalRow& row)
      : format_(format), row_(row) {}
  /// For message i; the same for all that follow the same role. None where it cannot be told.
  std::optional<std::string> before(std::size_t i);

 private:
  std::optional<std::string> behind(const boost::json::array& messages) const;
  bool has_parts() const;

  const ExampleFormat& format_;
  const NormalRow& row_;
  std::map<std::string, std::optional<std::string>> prompts_;  // by the role before
};

}  // namespace hybrid_trainer
