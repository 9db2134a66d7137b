#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "src/core/messages.h"
#include "src/files/config_fields.h"
#include "src/files/json.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

std::optional<double> number_in(const json::value& value) {
  if (value.is_double()) return value.get_double();
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  return {};
}

const FieldNode* find_field(const FieldNode& group, std::string_view name) {
  for (const FieldNode& field : group.fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

/// Returns the element of a named list that `rest` refers to, "NAME.KEY"; null if there is none.
const FieldNode* named_element(const FieldNode& list, const std::string& rest) {
  const std::string name = rest.substr(0, rest.rfind('.'));
  for (const FieldNode& element : list.elements) {
    if (element.name == name) return &element;
  }
  return nullptr;
}

}  // namespace

const FieldNode* field_at(const FieldNode& root, const std::string& path) {
  const FieldNode* field = &root;
  for (std::size_t begin = 0; field != nullptr && begin <= path.size();) {
    if (field->is_named) {
      field = named_element(*field, path.substr(begin));
      begin = path.rfind('.') + 1;
      if (field == nullptr) return nullptr;
    }
    const std::size_t end = std::min(path.find('.', begin), path.size());
    field = find_field(*field, std::string_view(path).substr(begin, end - begin));
    begin = end + 1;
  }
  return field;
}

namespace {

std::string brief(const json::value& value) {
  if (value.is_object()) return "an object";
  if (value.is_double()) {
    const double number = value.get_double();
    return shortest(number) +
           (std::trunc(number) == number ? " written with a decimal point or an exponent" : "");
  }
  const std::string text = json_line(value);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

const char* wanted(const FieldNode& field) {
  if (field.is_named) return "an object of objects, {\"NAME\": {\"KEY\": VALUE}}";
  if (field.is_list) return "a list of objects";
  switch (field.value.index()) {
    case 0: return "an object";
    case 1: return "true or false";
    case 2: return "a whole number";
    case 3: return "a number";
    case 4:
      return field.is_size           ? "bytes: 1000000, \"500MB\", \"16GiB\""
             : field.letters.empty() ? "a string"
                                     : "a string of letters or a list of words";
    default: return "a list of numbers";
  }
}

/// Returns the value in the field's type, or nullopt if the JSON value has a different type.
std::optional<FieldValue> converted(const FieldNode& field, const json::value& value) {
  if (field.is_list) return {};
  if (field.is_size && value.is_int64()) return std::to_string(value.get_int64());
  if (std::holds_alternative<bool>(field.value) && value.is_bool()) return value.get_bool();
  if (std::holds_alternative<std::string>(field.value) && value.is_string())
    return std::string(value.get_string());
  if (std::holds_alternative<std::int64_t>(field.value) && value.is_int64())
    return value.get_int64();
  if (std::holds_alternative<double>(field.value)) {
    if (const auto number = number_in(value)) return *number;
  }
  if (std::holds_alternative<std::vector<double>>(field.value) && value.is_array()) {
    std::vector<double> numbers;
    for (const json::value& element : value.get_array()) {
      const auto number = number_in(element);
      if (!number) return {};
      numbers.push_back(*number);
    }
    return numbers;
  }
  return {};
}

/// Returns the reason why the field does not accept a value of the right type, or "" if it does.
std::string value_problem(const FieldNode& field, const std::string& path,
                          const FieldValue& value) {
  const auto out_of_range = [&](double number) {
    return field.range.contains(number) ? "" : range_problem(path, number, field.range);
  };
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    if (*whole < field.lowest || *whole > field.highest) {
      return concat(path, ": got ", *whole, ", want a whole number from ", field.lowest, " to ",
                    field.highest);
    }
    return out_of_range(static_cast<double>(*whole));
  }
  if (const auto* number = std::get_if<double>(&value)) return out_of_range(*number);
  if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
    for (double number : *numbers) {
      const std::string problem = out_of_range(number);
      if (!problem.empty()) return problem;
    }
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    constexpr std::uint64_t kMinPlain = 4096;  // larger plain numbers of bytes need no unit
    const auto size = field.is_size ? MemorySize::parse(*text) : std::nullopt;
    if (field.is_size && !size)
      return concat(path, ": got ", *text, ", want bytes: 1000000, 500MB, 16GiB");
    if (size && size->bytes < kMinPlain && !MemorySize::has_unit(*text))
      return concat(path, ": got ", *text, ", which is ", size->bytes,
                    " bytes; give the unit: ", *text, "GiB, ", *text, "MB or ", *text, "B");
    bool known = field.choices.empty();
    for (const std::string& choice : field.choices) known = known || choice == *text;
    if (!known) return choice_problem(path, *text, field.choices);
  }
  return "";
}

constexpr std::size_t kMaxProblems = 100;  // per file: searching for the nearest names is slow

std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

std::vector<std::string> names_of(const FieldNode& group) {
  std::vector<std::string> names;
  for (const FieldNode& field : group.fields)
    if (!field.is_constant) names.push_back(field.name);
  return names;
}

/// Returns the path of the first field called `name` in any group, or "".
std::string path_of(const FieldNode& group, std::string_view name) {
  for (const FieldNode& field : group.fields) {
    if (field.name == name && !field.is_constant) return field.name;
    const std::string below = field.is_list ? "" : path_of(field, name);
    if (!below.empty()) return joined(field.name, below);
  }
  return "";
}

/// Maps names of keys in other programs to the names in this program.
std::string canonical_name(const std::string& name) {
  static const std::map<std::string, const char*> names{{"lr", "learning_rate"},
                                                        {"max_steps", "steps"},
                                                        {"bs", "batch_size"},
                                                        {"seq_len", "sequence_length"},
                                                        {"wd", "weight_decay"}};
  const auto found = names.find(name);
  return found == names.end() ? name : found->second;
}

std::string unknown_key(const FieldNode& root, const FieldNode& group, const std::string& path,
                        const std::string& name) {
  const std::string elsewhere = path_of(root, canonical_name(name));
  if (!elsewhere.empty()) return concat(path, ": unknown key; did you mean ", elsewhere, "?");
  return path + ": unknown key" + name_hint(name, names_of(group));
}

/// Assigns one letter for each word of the list, or returns the problem.
std::string assign_words(const FieldNode& field, const std::string& path,
                         const json::array& words) {
  std::string letters;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i].is_string() ? std::string(words[i].get_string()) : "";
    const auto found = std::ranges::find(field.letters, word, &LetterWord::word);
    if (found == field.letters.end())
      return concat(path, "[", i, "]: got ", brief(words[i]), ", want one of the words of ",
                    text_of(field.letters));
    letters += found->letter;
  }
  field.assign(letters);
  return "";
}

std::string assign(const FieldNode& field, const std::string& path, const json::value& value) {
  if (!field.letters.empty() && value.is_array())
    return assign_words(field, path, value.get_array());
  const auto own = converted(field, value);
  if (!own) return concat(path, ": got ", brief(value), ", want ", wanted(field));
  const std::string problem = value_problem(field, path, *own);
  if (problem.empty()) field.assign(*own);
  return problem;
}

struct FileReading {
  const FieldNode& root;
  const JsonKeys& keys;
  const std::string& file;
  std::vector<std::string> problems;

  void note(const std::string& path, const std::string& problem) {
    const auto line = keys.lines.find(path.substr(0, path.find('[')));  // a list has one line
    problems.push_back(line == keys.lines.end() ? concat(file, ": ", problem)
                                                : concat(file, ":", line->second, ": ", problem));
  }

  void read_named(const FieldNode& list, const std::string& path, const json::object& elements) {
    list.clear();
    for (const auto& [name, value] : elements) {
      const std::string at = joined(path, std::string(name));
      if (value.is_object()) {
        read_group(list.append(std::string(name)), at, value.get_object());
      } else {
        note(at, concat(at, ": got ", brief(value), ", want an object"));
      }
    }
  }

  void read_list(const FieldNode& list, const std::string& path, const json::array& elements) {
    list.clear();
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const std::string at = concat(path, "[", i, "]");
      if (elements[i].is_object()) {
        read_group(list.append(""), at, elements[i].get_object());
      } else {
        note(at, concat(at, ": got ", brief(elements[i]), ", want an object"));
      }
    }
  }

  void read_group(const FieldNode& group, const std::string& path, const json::object& object) {
    for (const auto& [key, value] : object) {
      if (problems.size() >= kMaxProblems) return;
      const std::string name(key);
      const std::string at = joined(path, name);
      if (path.empty() && name == "$schema") continue;
      const FieldNode* field = find_field(group, name);
      if (field == nullptr) {
        note(at, unknown_key(root, group, at, name));
      } else if (field->is_group() && value.is_object()) {
        read_group(*field, at, value.get_object());
      } else if (field->is_named && value.is_object()) {
        read_named(*field, at, value.get_object());
      } else if (field->is_list && !field->is_named && value.is_array()) {
        read_list(*field, at, value.get_array());
      } else {
        const std::string problem = assign(*field, at, value);
        if (!problem.empty()) note(at, problem);
      }
    }
  }
};

}  // namespace

void read_fields(const FieldNode& root, const std::string& file) {
  std::string text;
  try {
    text = read_text(file, JsonLimits{}.max_bytes);
  } catch (const DataError& error) {
    throw ConfigError({error.what()});
  }
  read_fields_text(root, text, file);
}

void read_fields_text(const FieldNode& root, const std::string& text, const std::string& file) {
  JsonKeys keys;
  json::value value;
  try {
    value = parse_json_text(text, file, keys);
  } catch (const DataError& error) {
    throw ConfigError({error.what()});
  }
  if (!value.is_object())
    throw ConfigError(
        {concat(file, ": got ", brief(value), ", want an object {\"group\": {\"key\": value}}")});
  FileReading reading{root, keys, file, {}};
  for (const auto& duplicate : keys.duplicates)
    reading.problems.push_back(
        concat(file, ":", duplicate.line, ": ", duplicate.path, ": the key is given twice"));
  reading.read_group(root, "", value.get_object());
  if (!reading.problems.empty()) throw ConfigError(std::move(reading.problems));
}

/// Sets one value of `--set`; texts may be unquoted.
static void set_value(const FieldNode& field, const std::string& path, const std::string& text) {
  const bool is_list = !field.letters.empty() && text.starts_with('[');
  const bool is_text = std::holds_alternative<std::string>(field.value) && !is_list;
  json::value value = json::string(text);
  try {
    value = parse_json_text(is_text ? json::serialize(value) : text, path);
  } catch (const DataError&) {
    if (is_text) throw ConfigError({path + ": the text is not valid UTF-8"});
    if (is_list)
      throw ConfigError({concat(path, ": got ", text, ", want a list such as [\"",
                                field.letters.front().word, "\"]")});
  }
  const std::string problem = assign(field, path, value);
  if (!problem.empty()) throw ConfigError({problem});
}

/// Sets a key of a named element, "parts.video.*.recompute". The name and the key begin at `begin`.
/// Appends the element if it does not exist.
static void set_of_element(const FieldNode& root, const FieldNode& list, const std::string& path,
                           std::size_t begin, const std::string& text) {
  const std::size_t dot = path.rfind('.');
  if (dot <= begin)
    throw ConfigError({concat(path, ": want ", path.substr(0, begin), "NAME.KEY=VALUE, or ",
                              path.substr(0, begin - 1), "={\"NAME\": {\"KEY\": VALUE}}")});
  const std::string key = path.substr(dot + 1);
  if (find_field(list, key) == nullptr) throw ConfigError({unknown_key(root, list, path, key)});
  FieldNode checked = *find_field(list, key);  // checks the value before appending an element
  checked.assign = [](const FieldValue&) {};
  set_value(checked, path, text);
  const FieldNode* const known = named_element(list, path.substr(begin));
  const FieldNode element = known ? *known : list.append(path.substr(begin, dot - begin));
  set_value(*find_field(element, key), path, text);
}

void set_field(const FieldNode& root, const std::string& path, const std::string& text) {
  const FieldNode* field = &root;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    if (field->is_named) return set_of_element(root, *field, path, begin, text);
    if (field->is_list)
      throw ConfigError({concat(path, ": ", path.substr(0, begin - 1),
                                " is a list; set the complete list, [{\"KEY\": VALUE, …}, …]")});
    const FieldNode* below = find_field(*field, name);
    if (below == nullptr) throw ConfigError({unknown_key(root, *field, path, name)});
    field = below;
    begin = end + 1;
  }
  if (field->is_group())
    throw ConfigError(
        {concat(path, ": is a group of keys; set one of them", name_hint("", names_of(*field)))});
  if (!field->is_list) return set_value(*field, path, text);
  json::value value;
  try {
    value = parse_json_text(text, path);
  } catch (const DataError& error) {
    throw ConfigError({error.what()});
  }
  const JsonKeys keys;
  const std::string name = "--set";
  FileReading reading{root, keys, name, {}};
  if (field->is_named && value.is_object()) {
    reading.read_named(*field, path, value.get_object());
  } else if (!field->is_named && value.is_array()) {
    reading.read_list(*field, path, value.get_array());
  } else {
    throw ConfigError({assign(*field, path, value)});
  }
  if (!reading.problems.empty()) throw ConfigError(std::move(reading.problems));
}

}  // namespace hybrid_trainer
