#pragma once

#include <functional>
#include <variant>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Value of a field: enums are stored as names, a MemorySize as text, groups as std::monostate.
using FieldValue =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<double>>;

/// A field of a config struct without its C++ type. The root has no name.
struct FieldNode {
  std::string name;
  std::string help;
  Range range;                       // range of a number, or of each number of a list
  std::vector<std::string> choices;  // valid values of a text; empty if all are valid
  FieldValue value;                  // current value in the struct
  std::vector<LetterWord> letters;   // words of a text that JSON may also write as a list of words
  bool is_size = false;              // whether the field is a MemorySize
  bool is_constant = false;          // whether the field is not a key; see constant()
  /// True if JSON omits the field, because it is an empty optional or a constant with its default.
  bool left_out = false;
  std::int64_t lowest = std::numeric_limits<std::int64_t>::min();  // limits of the C++ integer type
  std::int64_t highest = std::numeric_limits<std::int64_t>::max();
  std::function<void(const FieldValue&)> assign;  // writes a value of the same type into the struct
  std::vector<FieldNode> fields;                  // fields of a group, or of an element of a list
  bool is_list = false;                           // whether the field is a list of groups
  bool is_named = false;
  std::vector<FieldNode> elements;
  std::function<void()> clear;  // removes all elements of the list
  /// Appends an element, named `name` if the list is named. Write to the element before you append
  /// another one.
  std::function<FieldNode(const std::string& name)> append;

  KeyOwner owner = KeyOwner::kOwn;
  OnResume resume = OnResume::kSame;
  Question question = Question::kNone;
  std::vector<KeyNeed> needs;

  bool is_group() const { return std::holds_alternative<std::monostate>(value) && !is_list; }
};

namespace detail {

template <class T>
FieldNode field_node(const Field<T>& field);

template <class T>
void add_fields(FieldNode& group, T& config) {
  using Struct = std::remove_const_t<T>;
  const std::size_t first = group.fields.size();
  Struct::visit_fields(config,
                       [&](const auto& field) { group.fields.push_back(field_node(field)); });
  Struct defaults;
  Struct::visit_fields(defaults, [&, at = first](const auto& field) mutable {
    FieldNode& node = group.fields[at++];
    node.is_constant = field.is_constant;
    if (field.is_constant) node.left_out = node.value == field_node(field).value;
    if constexpr (requires { config.owner_of(field.name); })
      node.owner = config.owner_of(field.name);
  });
}

/// Converts between a field of type T and the variant.
template <class T>
FieldValue to_field_value(const T& value) {
  if constexpr (NamedEnum<T>) {
    return enum_names(value).at(static_cast<std::size_t>(value));
  } else if constexpr (std::is_same_v<T, MemorySize>) {
    return value.text();
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return static_cast<std::int64_t>(value);
  } else {
    return value;
  }
}

template <class T>
void from_field_value(T& target, const FieldValue& value) {
  if constexpr (NamedEnum<T>) {
    const std::vector<std::string>& names = enum_names(target);
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == std::get<std::string>(value)) target = static_cast<T>(i);
    }
  } else if constexpr (std::is_same_v<T, MemorySize>) {
    target = MemorySize::parse(std::get<std::string>(value)).value();
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    target = static_cast<T>(std::get<std::int64_t>(value));
  } else {
    target = std::get<T>(value);
  }
}

template <class List>
void add_list(FieldNode& node, List& list) {
  using Element = typename List::value_type;
  node.is_list = true;
  node.is_named = NamedElement<Element>;
  Element prototype;
  Element::visit_fields(prototype, []<class T>(const Field<T>&) {
    static_assert(!FieldStruct<T> && !kIsFieldStructList<T>,
                  "an element must not contain groups or lists");
  });
  add_fields(node, prototype);
  for (FieldNode& field : node.fields) field.assign = nullptr;
  for (auto& element : list) {
    if constexpr (NamedElement<Element>) {
      node.elements.emplace_back().name = element.*Element::kName;
    } else {
      node.elements.emplace_back();
    }
    add_fields(node.elements.back(), element);
  }
  if constexpr (!std::is_const_v<List>) {
    node.clear = [target = &list] { target->clear(); };
    node.append = [target = &list](const std::string& name) {
      FieldNode made;
      made.name = name;
      Element& element = target->emplace_back();
      if constexpr (NamedElement<Element>) element.*Element::kName = name;
      add_fields(made, element);
      return made;
    };
  }
}

template <class T>
FieldNode field_node(const Field<T>& field) {
  using Value = std::remove_const_t<T>;
  FieldNode node;
  node.name = field.name;
  node.help = field.help;
  node.range = field.range;
  node.choices = field.choices;
  if constexpr (FieldStruct<Value>) {
    add_fields(node, field.value);
  } else if constexpr (kIsFieldStructList<Value>) {
    add_list(node, field.value);
  } else if constexpr (kIsOptional<Value>) {
    static_assert(!FieldStruct<typename Value::value_type>, "an omitted value must not be a group");
    auto held = field.value.value_or(typename Value::value_type{});
    node = field_node(Field{field.name, held, field.help, field.range, field.choices});
    node.left_out = !field.value.has_value();
    node.assign = nullptr;
    if constexpr (!std::is_const_v<T>) {
      node.assign = [target = &field.value](const FieldValue& value) {
        from_field_value(target->emplace(), value);
      };
    }
  } else {
    node.value = to_field_value<Value>(field.value);
    if constexpr (NamedEnum<Value>) node.choices = enum_names(field.value);
    node.is_size = std::is_same_v<Value, MemorySize>;
    if constexpr (std::is_integral_v<Value> && sizeof(Value) < 8) {
      node.lowest = std::numeric_limits<Value>::min();
      node.highest = std::numeric_limits<Value>::max();
    } else if constexpr (std::is_unsigned_v<Value>) {
      node.lowest = 0;
    }
    if constexpr (!std::is_const_v<T>) {
      node.assign = [target = &field.value](const FieldValue& value) {
        from_field_value(*target, value);
      };
    }
  }
  node.resume = field.resume;
  node.question = field.question;
  node.letters = field.letters;
  node.needs = field.all_needs;
  return node;
}

}  // namespace detail

/// Returns the tree of a config struct, which must outlive it. Assigning to a field writes to it.
template <class T>
FieldNode field_tree(T& config) {
  FieldNode root;
  detail::add_fields(root, config);
  return root;
}

/// Returns the fields as indented JSON, in order. Doubles are read back bit-identically.
std::string fields_json(const FieldNode& root);
/// Returns a value in readable form: adamw, 0.001, [0.9, 0.95].
std::string field_text(const FieldValue& value);
/// Returns the value of a field, or the elements of a list, [{match: embedding, name: sgd}].
std::string field_text(const FieldNode& field);
/// Returns a JSON Schema (draft 2020-12) with types, defaults, ranges, choices and help. The schema
/// allows no other keys except "$schema".
std::string fields_schema(const FieldNode& root);
/// Returns the field at a path such as "optimizer.name" or "parts.video.*.recompute", or null.
const FieldNode* field_at(const FieldNode& root, const std::string& path);
/// Returns Markdown tables "key, default, allowed, meaning" by group, with KeyOwner::kRelated keys.
std::string fields_markdown(const FieldNode& root);
/// Writes the values of a JSON file into the struct; fields without a key keep their values. Safe
/// for untrusted files. Throws MissingInput, or one ConfigError with every problem as "file:line:
/// path: problem"; the struct may then contain some of the values.
void read_fields(const FieldNode& root, const std::string& file);
/// Reads fields like read_fields, but from a text. `name` is the name of the text in messages.
void read_fields_text(const FieldNode& root, const std::string& text, const std::string& name);
/// Sets a field as --set does: a number, a boolean, a text or [0.9, 0.95]. Throws ConfigError.
void set_field(const FieldNode& root, const std::string& path, const std::string& text);

template <FieldStruct T>
std::string config_json(const T& config) {
  return fields_json(field_tree(config));
}
template <FieldStruct T>
std::string json_schema(const T& config) {
  return fields_schema(field_tree(config));
}
template <FieldStruct T>
std::string config_markdown(const T& config) {
  return fields_markdown(field_tree(config));
}
template <FieldStruct T>
void read_config(T& config, const std::string& file) {
  read_fields(field_tree(config), file);
}
template <FieldStruct T>
void read_config_text(T& config, const std::string& text, const std::string& name) {
  read_fields_text(field_tree(config), text, name);
}
template <FieldStruct T>
void set_field(T& config, const std::string& path, const std::string& text) {
  set_field(field_tree(config), path, text);
}

}  // namespace hybrid_trainer
