#pragma once

#include <ctime>
#include <span>

#include "src/data/chat/value.h"

namespace hybrid_trainer::jinja {

struct Signature {
  std::string_view name;
  /// Names, without the value to which a method, filter or test is applied.
  std::vector<std::string_view> parameters;
  std::size_t required = 0;  // number of leading parameters that must be given
};
const Signature* find_signature(std::span<const Signature> table, std::string_view name);

std::span<const Signature> functions();
std::span<const Signature> methods();
bool is_dict_method(std::string_view method);
std::span<const Signature> filters();
std::span<const Signature> tests();

/// Arguments in the order of the parameters. An argument that is not given is Undefined.
using Arguments = std::vector<Value>;

/// Call a function, method, filter or test. Throw Problem if it does not accept the arguments.
Value apply_function(const std::string& name, const Arguments& arguments, std::time_t now);
Value apply_method(const Value& self, const std::string& name, const Arguments& arguments);
Value apply_filter(const Value& input, const std::string& name, const Arguments& arguments);
bool apply_test(const Value& input, const std::string& name, const Arguments& arguments);

/// Returns an int argument, or `otherwise` if it is not given. Throws Problem if it is not an int.
std::int64_t count_in(const Value& value, std::int64_t otherwise);

/// Returns the entries of a dict or a namespace; null for other values.
const Dict* entries_of(const Value& value);
/// Returns value.name, or Undefined. Throws Problem for Python's unsupported attributes.
Value attribute_of(const Value& value, const std::string& name);
Value item_of(const Value& value, const Value& key);
/// Returns value[start:stop:step]. Bounds that are not given are None.
Value slice_of(const Value& value, const Value& start, const Value& stop, const Value& step);
/// Returns the result of left + right, or of another operation: - * / // %.
Value calculate(const Value& left, const std::string& operation, const Value& right);
Value negative_of(const Value& value);

}  // namespace hybrid_trainer::jinja
