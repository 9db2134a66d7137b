#include "src/tasks/picture_labels.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/unicode_forms.h"

namespace hybrid_trainer {
namespace {

/// Some of the names, for a message.
std::string names_of_classes(const std::vector<ClassLabel>& classes) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> names;
  for (const ClassLabel& one : classes) {
    if (names.size() == kShown) break;
    names.push_back(one.name);
  }
  return concat(join(names),
                classes.size() > kShown ? concat(" and ", classes.size() - kShown, " more") : "");
}

/// The number that a text is, as tables hold it: "7", and not "07", which is another label.
std::optional<std::int64_t> number_in(const std::string& text) {
  std::int64_t number = 0;
  if (text.size() > 1 && text.front() == '0') return {};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 0) return {};
  return number;
}

}  // namespace

std::optional<std::int64_t> number_of(const PictureLabel& label) {
  return label.number ? label.number : number_in(label.text);
}

bool is_named(const PictureLabel& label, const std::vector<ClassLabel>& classes) {
  const auto has = [&](const std::string& name) {
    return std::ranges::find(classes, name, &ClassLabel::name) != classes.end();
  };
  const std::optional<std::int64_t> number = number_of(label);
  if (has(label.text)) return true;
  if (!number || *number >= std::ssize(classes)) return false;
  const std::string& name = classes[static_cast<std::size_t>(*number)].name;
  return name == concat("LABEL_", *number) ||
         std::ranges::count(classes, name, &ClassLabel::name) > 1;
}

std::string told_of_similar(const std::vector<ClassLabel>& classes) {
  std::map<std::string, std::string> seen;  // a name by its normal form
  for (const ClassLabel& one : classes) {
    std::string left = in_unicode_form(one.name, UnicodeForm::kC);
    std::erase_if(left, [](unsigned char c) { return std::isspace(c) != 0; });
    std::ranges::transform(left, left.begin(), [](unsigned char c) { return std::tolower(c); });
    const std::size_t digits = left.find_first_not_of('0');
    if (digits != left.npos && left.find_first_not_of("0123456789") == left.npos)
      left = left.substr(digits);
    const auto [other, is_new] = seen.emplace(left, one.name);
    if (!is_new)
      return concat("the labels \"", other->second, "\" and \"", one.name,
                    "\" are two classes; write both alike if they mean one");
  }
  return "";
}

std::int32_t class_of(const PictureLabel& label, const std::vector<ClassLabel>& classes) {
  std::optional<std::int64_t> found = label.number;
  if (!found) {
    const auto named = std::ranges::find(classes, label.text, &ClassLabel::name);
    if (named != classes.end()) {
      const auto other = std::ranges::find(named + 1, classes.end(), label.text, &ClassLabel::name);
      if (other != classes.end())
        throw DataError(concat("the label ", label.text, " is the name of the classes ",
                               named - classes.begin(), " and ", other - classes.begin(),
                               "; give their number in its place"));
      return static_cast<std::int32_t>(named - classes.begin());
    }
    found = number_in(label.text);
  }
  if (found && *found < std::ssize(classes)) return static_cast<std::int32_t>(*found);
  throw DataError(concat("the label ", label.text,
                         " is none of the model's classes: ", names_of_classes(classes)));
}

std::vector<ClassLabel> classes_in(const std::vector<PictureRow>& rows) {
  std::set<std::string> names;
  std::int64_t largest = -1;
  bool all_are_numbers = true;
  for (const PictureRow& row : rows) {
    const auto number = number_of(row.label);
    all_are_numbers = all_are_numbers && number;
    if (number) largest = std::max(largest, *number);
    names.insert(row.label.text);
  }
  std::vector<ClassLabel> classes;
  if (all_are_numbers) {
    constexpr std::int64_t kMostClasses = 1 << 16;
    if (largest >= kMostClasses)
      throw DataError(
          concat("the largest label is ", largest, "; want numbers below ", kMostClasses));
    for (std::int64_t i = 0; i <= largest; ++i) classes.push_back({concat("LABEL_", i)});
  } else {
    const auto number =
        std::ranges::find_if(rows, [](auto& row) { return row.label.number.has_value(); });
    if (number != rows.end())
      throw DataError(concat("some labels are names and others numbers, such as ",
                             *number->label.number, "; want one or the other"));
    for (const std::string& name : names) classes.push_back({name});
  }
  if (classes.size() < 2)
    throw DataError(concat("all pictures have the label ", rows.front().label.text,
                           "; want two classes or more"));
  return classes;
}

}  // namespace hybrid_trainer
