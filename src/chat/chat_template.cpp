#include "hybrid_trainer/chat/chat_template.h"

#include <boost/json.hpp>
#include <cctype>

#include "hybrid_trainer/core/error.h"
#include "src/chat/evaluation.h"
#include "src/chat/parser.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;

jinja::Value value_of_json(const json::value& value) {
  switch (value.kind()) {
    case json::kind::bool_:
      return {value.get_bool()};
    case json::kind::int64:
      return {value.get_int64()};
    case json::kind::uint64:
      throw jinja::Problem(concat("the number ", value.get_uint64(), " does not fit 64 bits"));
    case json::kind::double_:
      return {value.get_double()};
    case json::kind::string:
      return {std::string(value.get_string())};
    case json::kind::array: {
      jinja::List items;
      for (const json::value& item : value.get_array()) items.push_back(value_of_json(item));
      return jinja::list_of(std::move(items));
    }
    case json::kind::object: {
      jinja::Dict entries;
      for (const auto& [key, entry] : value.get_object())
        entries.emplace_back(key, value_of_json(entry));
      return jinja::dict_of(std::move(entries));
    }
    case json::kind::null:
      break;
  }
  return {jinja::None{}};
}

}  // namespace

struct ChatTemplate::Parsed : jinja::ParsedTemplate {};

ChatTemplate::ChatTemplate(const std::string& source, std::string name)
    : name_(std::move(name)), source_(source) {
  if (source.size() > kMostBytes)
    throw DataError(concat(name_, ": the template has ", source.size(), " bytes; at most ",
                           kMostBytes, " are read"));
  parsed_ = std::make_unique<Parsed>(Parsed{jinja::parse_template(source, name_)});
}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

bool ChatTemplate::marks_generation() const { return parsed_->marks_generation; }
bool ChatTemplate::reads_date() const { return parsed_->reads_date; }
bool ChatTemplate::mentions(std::string_view word) const {
  const auto is_of_word = [&](std::size_t at) {
    const auto c = static_cast<unsigned char>(at < source_.size() ? source_[at] : ' ');
    return std::isalnum(c) != 0 || c == '_';
  };
  for (std::size_t at = source_.find(word); at != source_.npos; at = source_.find(word, at + 1))
    if (!is_of_word(at - 1) && !is_of_word(at + word.size())) return true;
  return false;
}

RenderedChat ChatTemplate::render(const json::object& variables, std::time_t now) const {
  int line = 1;
  try {
    jinja::Dict values;
    for (const auto& [name, value] : variables) values.emplace_back(name, value_of_json(value));
    return jinja::render(*parsed_, std::move(values), now, line);
  } catch (const jinja::Problem& problem) {
    throw DataError(concat(name_, ":", line, ": ", problem.what()));
  }
}

}  // namespace hybrid_trainer
