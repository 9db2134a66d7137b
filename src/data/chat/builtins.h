#pragma once

#include <ctime>
#include <span>

#include "src/data/chat/value.h"

namespace hybrid_trainer::jinja {

/// How a function, method, filter or test is called.
struct Signature {
  std::string_view name;
  std::vector<std::string_view> parameters;  // without what it is applied to
  std::size_t required = 0;                  // the first so many must be given
};
/// Null where there is none of that name.
const Signature* find_signature(std::span<const Signature> table, std::string_view name);

std::span<const Signature> functions();
std::span<const Signature> methods();
/// Whether a method is one of dicts, not of texts.
bool is_of_dicts(std::string_view method);
std::span<const Signature> filters();
std::span<const Signature> tests();

/// Arguments in the order of the parameters; Undefined where one was not given.
using Arguments = std::vector<Value>;

/// Each throws Problem.
Value apply_function(const std::string& name, const Arguments& arguments, std::time_t now);
Value apply_method(const Value& self, const std::string& name, const Arguments& arguments);
Value apply_filter(const Value& input, const std::string& name, const Arguments& arguments);
bool apply_test(const Value& input, const std::string& name, const Arguments& arguments);

/// An int that was given. Throws Problem where it is none.
std::int64_t count_in(const Value& value, std::int64_t otherwise);

/// Whether a dict of Python has an attribute of that name, before any key.
bool is_name_of_python(std::string_view name);
/// Of a dict or a namespace; else null.
const Dict* entries_of(const Value& value);
/// What a dict has under a text, or a list at a place; else null.
const Value* item_in(const Value& owner, const Value& key);
/// value.name, or Undefined. Throws Problem for an attribute of Python that is not supported.
Value attribute_of(const Value& value, const std::string& name);
/// value[key], or Undefined.
Value item_of(const Value& value, const Value& key);
/// value[start:stop:step]; None where one is missing.
Value slice_of(const Value& value, const Value& start, const Value& stop, const Value& step);
/// left + right and so on, for + - * / // %.
Value calculate(const Value& left, const std::string& operation, const Value& right);
Value negative_of(const Value& value);

}  // namespace hybrid_trainer::jinja
