#include "src/io/spelled_keys.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <set>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "src/io/field_values.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

std::string canonical(const FieldNode& field, const json::value& value) {
  const auto own = converted(field, value);
  if (!own) return json::serialize(value);
  const auto size = field.is_size ? MemorySize::parse(std::get<std::string>(*own)) : std::nullopt;
  return size ? size->text() : field_text(*own);
}

std::string text_in(const json::value& value) {
  return value.is_string() ? std::string(value.get_string()) : json::serialize(value);
}

/// The value of the keys of another name.
json::value spelled_value(const Spelling& spelling, const json::value& given,
                          const Spelling::ValueOf& value_of) {
  if (spelling.meaning) return json::string(spelling.meaning(text_in(given), value_of));
  return spelling.unit.empty() ? given : json::value(text_in(given) + spelling.unit);
}

bool says_nothing(const Spelling& spelling, const json::value& value) {
  return spelling.meaning && value.get_string().empty();
}

/// What is wrong with a value by another name, or "". Lists are checked where they are read.
std::string spelled_problem(const FieldNode& root, const Spelling& spelling,
                            const json::value& given, const json::value& value) {
  const FieldNode& field = *field_at(root, spelling.keys.front());
  const std::string text = text_in(given);
  const bool is_whole =
      !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  if (!spelling.unit.empty() && !(is_whole && MemorySize::parse(text + spelling.unit)))
    return concat(spelling.name, ": got ", text, ", want a whole number of ", spelling.unit);
  if (field.is_list) return "";
  const auto own = converted(field, value);
  return own ? value_problem(field, spelling.name, *own)
             : concat(spelling.name, ": got ", brief(value), ", want ", wanted(field));
}

/// The object that holds the last name of `path`, made where it is missing; null where what is there
/// is no object.
json::object* holder_of(json::object& file, const std::string& path) {
  json::object* holder = &file;
  for (std::size_t begin = 0, dot; (dot = path.find('.', begin)) != std::string::npos;
       begin = dot + 1) {
    json::value& group =
        holder->emplace(path.substr(begin, dot - begin), json::object()).first->value();
    if (!group.is_object()) return nullptr;
    holder = &group.get_object();
  }
  return holder;
}

std::string last_name(const std::string& path) { return path.substr(path.rfind('.') + 1); }

/// One file's values.
class SpelledFile {
 public:
  SpelledFile(const FieldNode& root, json::object& file, JsonKeys& keys)
      : root_(root), file_(file), keys_(keys) {}

  std::vector<std::string> move_all() {
    for (const Spelling& spelling : root_.spellings) {
      if (const json::value* const given = find(spelling.name))
        move(spelling, json::value(*given));  // a copy, as its group changes
    }
    for (const Spelling& spelling : root_.spellings) {
      if (keys_.lines.contains(spelling.name) && find(spelling.name) != nullptr)
        holder_of(file_, spelling.name)->erase(last_name(spelling.name));
    }
    return std::move(problems_);
  }

 private:
  json::value* find(const std::string& path) {
    if (!keys_.lines.contains(path)) return nullptr;
    json::object* const holder = holder_of(file_, path);
    return holder == nullptr ? nullptr : holder->if_contains(last_name(path));
  }

  void move(const Spelling& spelling, const json::value& given) {
    const json::value value = spelled_value(spelling, given, [&](const std::string& key) {
      const json::value* const here = find(key);
      return here == nullptr ? field_text(*field_at(root_, key)) : text_in(*here);
    });
    if (says_nothing(spelling, value)) return;
    if (const std::string problem = spelled_problem(root_, spelling, given, value);
        !problem.empty()) {
      problems_.push_back(problem);
      return;
    }
    for (const std::string& key : spelling.keys) {
      if (find(key) != nullptr && !moved_.contains(key)) {
        compare(spelling, key, text_in(given), value);
      } else if (json::object* const holder = holder_of(file_, key)) {
        (*holder)[last_name(key)] = value;
        keys_.lines[key] = keys_.lines[spelling.name];
        moved_.insert(key);
      }
    }
  }

  /// The key's own value counts, but a value that says nothing gives way.
  void compare(const Spelling& spelling, const std::string& key, const std::string& given,
               const json::value& value) {
    const FieldNode& field = *field_at(root_, key);
    json::value& own = *find(key);
    const std::string here = canonical(field, value), there = canonical(field, own);
    const bool may_be_silent = !spelling.silent.empty();
    const bool are_apart = keys_.lines.contains(spelling.once_apart_beside);
    if (here == there || (may_be_silent && given == spelling.silent)) return;
    if (may_be_silent && there == canonical(field, json::value(spelling.silent + spelling.unit))) {
      own = value;
    } else if (are_apart) {
      if (MemorySize::parse(here)->bytes < MemorySize::parse(there)->bytes) own = value;
    } else {
      problems_.push_back(concat(spelling.name, ": got ", given, ", but ", key,
                                 ", which it is another name of, is ", there,
                                 "; give one of the two"));
    }
  }

  const FieldNode& root_;
  json::object& file_;
  JsonKeys& keys_;
  std::set<std::string> moved_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> move_spelled_values(const FieldNode& root, json::object& file,
                                             JsonKeys& keys) {
  return SpelledFile(root, file, keys).move_all();
}

/// Problems call the key as it was given.
static void set_by(const std::string& name, const FieldNode& root, const std::string& key,
                   const std::string& text) try {
  set_field(root, key, text);
} catch (const ConfigError& error) {
  std::vector<std::string> problems = error.problems();
  for (std::string& problem : problems) {
    if (problem.starts_with(key)) problem.replace(0, key.size(), name);
  }
  throw ConfigError(std::move(problems));
}

std::vector<std::string> set_spelled(const FieldNode& root, const std::string& path,
                                     const std::string& text) {
  std::vector<std::string> keys;
  for (const Spelling& spelling : root.spellings) {
    if (spelling.name != path) continue;
    const json::value value =
        spelled_value(spelling, json::string(text),
                      [&](const std::string& key) { return field_text(*field_at(root, key)); });
    if (says_nothing(spelling, value)) continue;
    if (!spelling.unit.empty()) {
      const std::string problem = spelled_problem(root, spelling, json::string(text), value);
      if (!problem.empty()) throw ConfigError({problem});
    }
    for (const std::string& key : spelling.keys) {
      set_by(spelling.name, root, key, text_in(value));
      keys.push_back(key);
    }
  }
  return keys;
}

std::vector<std::string> keys_of(const FieldNode& root, const std::string& path) {
  std::vector<std::string> keys;
  for (const Spelling& spelling : root.spellings) {
    if (spelling.name == path) keys.insert(keys.end(), spelling.keys.begin(), spelling.keys.end());
  }
  return keys.empty() ? std::vector<std::string>{path} : keys;
}

std::string GivenNames::add(const FieldNode& now, const std::string& name,
                            const std::string& option, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    const Given is{option, field_text(*field_at(now, key)), key != name};
    const Given was = std::exchange(given_.try_emplace(key, is).first->second, is);
    const bool is_same_name = was.option == option || (was.is_spelling && is.is_spelling);
    if (is_same_name || was.value == is.value) continue;
    return concat(option, " makes ", key, " ", is.value, ", but ", was.option,
                  ", another name of it, makes it ", was.value, "; give one of the two");
  }
  return "";
}

}  // namespace hybrid_trainer
