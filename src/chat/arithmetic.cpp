#include <cmath>
#include <optional>

#include "hybrid_trainer/core/error.h"
#include "src/chat/builtins.h"

namespace hybrid_trainer::jinja {

namespace {

struct Operands {
  std::int64_t whole[2] = {};
  double real[2] = {};
  bool are_whole = true;
};

/// None where one is no number.
std::optional<Operands> numbers_in(const Value& left, const Value& right) {
  Operands operands;
  const Value* values[2] = {&left, &right};
  for (int i = 0; i < 2; ++i) {
    if (const auto* held = values[i]->if_is<double>()) {
      operands.real[i] = *held;
      operands.are_whole = false;
      continue;
    }
    const auto* flag = values[i]->if_is<bool>();
    const auto* whole = values[i]->if_is<std::int64_t>();
    if (flag == nullptr && whole == nullptr) return {};
    operands.whole[i] = flag != nullptr ? *flag : *whole;
    operands.real[i] = static_cast<double>(operands.whole[i]);
  }
  return operands;
}

Value of_whole(std::int64_t left, const std::string& operation, std::int64_t right) {
  std::int64_t result = 0;
  bool overflows = false;
  if (operation == "+") {
    overflows = __builtin_add_overflow(left, right, &result);
  } else if (operation == "-") {
    overflows = __builtin_sub_overflow(left, right, &result);
  } else if (operation == "*") {
    overflows = __builtin_mul_overflow(left, right, &result);
  } else {
    overflows = left == INT64_MIN && right == -1;
    if (!overflows) {  // both round down
      const bool has_rest = left % right != 0 && (left < 0) != (right < 0);
      result = operation == "%" ? left % right + (has_rest ? right : 0)
                                : left / right - (has_rest ? 1 : 0);
    }
  }
  if (overflows) throw Problem(concat(left, " ", operation, " ", right, " does not fit 64 bits"));
  return {result};
}

Value of_numbers(const Operands& operands, const std::string& operation) {
  const auto [left, right] = operands.real;
  const bool divides = operation == "/" || operation == "//" || operation == "%";
  if (divides && right == 0) throw Problem("division by zero");
  if (operation == "/") return {left / right};
  if (operands.are_whole) return of_whole(operands.whole[0], operation, operands.whole[1]);
  if (operation == "+") return {left + right};
  if (operation == "-") return {left - right};
  if (operation == "*") return {left * right};
  const double rest = std::fmod(left, right);
  const double modulus = rest == 0                   ? std::copysign(0.0, right)
                         : (rest < 0) != (right < 0) ? rest + right
                                                     : rest;
  return {operation == "%" ? modulus : std::round((left - modulus) / right)};
}

/// Of a text or a list, so many times.
std::optional<Value> repeated(const Value& value, const Value& times) {
  const auto* count = times.if_is<std::int64_t>();
  const auto* text = value.if_is<std::string>();
  const auto* list = value.if_is<Sequence>();
  if (count == nullptr || (text == nullptr && list == nullptr)) return {};
  const std::size_t bytes = extent_of(value).bytes;
  const auto copies = static_cast<std::size_t>(std::max<std::int64_t>(*count, 0));
  if (bytes > 0 && copies > kMostBytes / bytes)
    throw Problem(concat("repeating a ", type_of(value), " ", copies, " times makes more than ",
                         kMostBytes >> 20, " MiB"));
  std::string characters;
  List items;
  for (std::size_t i = 0; i < (bytes > 0 ? copies : 0); ++i) {
    if (text != nullptr) {
      characters += *text;
    } else {
      items.insert(items.end(), list->items->begin(), list->items->end());
    }
  }
  if (text != nullptr) return Value{std::move(characters)};
  return list->is_tuple ? tuple_of(std::move(items)) : list_of(std::move(items));
}

}  // namespace

Value calculate(const Value& left, const std::string& operation, const Value& right) {
  want_defined(left);
  want_defined(right);
  if (left.is_safe || right.is_safe)
    throw Problem(concat("a text marked safe with \"", operation, "\" is not supported"));
  if (const auto operands = numbers_in(left, right)) return of_numbers(*operands, operation);
  const auto *first = left.if_is<std::string>(), *second = right.if_is<std::string>();
  if (operation == "+" && first != nullptr && second != nullptr) {
    want_room(first->size() + second->size(), "\"+\" makes a text");
    return {*first + *second};
  }
  const auto *a = left.if_is<Sequence>(), *b = right.if_is<Sequence>();
  if (operation == "+" && a != nullptr && b != nullptr && a->is_tuple == b->is_tuple) {
    want_room(a->extent.bytes + b->extent.bytes, "\"+\" makes a list");
    List items = *a->items;
    items.insert(items.end(), b->items->begin(), b->items->end());
    return a->is_tuple ? tuple_of(std::move(items)) : list_of(std::move(items));
  }
  if (operation == "*") {
    if (auto result = repeated(left, right)) return *std::move(result);
    if (auto result = repeated(right, left)) return *std::move(result);
  }
  if (operation == "%" && left.is<std::string>())
    throw Problem("formatting a text with \"%\" is not supported");
  throw Problem(concat("\"", operation, "\" of ", type_of(left), " and ", type_of(right)));
}

Value negative_of(const Value& value) {
  if (const auto* held = value.if_is<double>()) return {-*held};
  return calculate({std::int64_t{0}}, "-", value);
}

}  // namespace hybrid_trainer::jinja
