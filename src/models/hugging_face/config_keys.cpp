#include "hybrid_trainer/models/config_keys.h"

#include <charconv>
#include <cmath>

#include "src/core/narrow.h"
#include "src/models/hugging_face/config_reader.h"

namespace hybrid_trainer {

namespace {

/// Returns an integer if the number is whole, since transformers distinguishes integers and floats.
ConfigValue whole(double value) {
  if (!holds_number<std::int64_t>(value) || std::trunc(value) != value) return value;
  return narrow<std::int64_t>(value);
}
ConfigValue whole(std::int64_t value) { return value; }
ConfigValue whole(bool value) { return value; }

double rounded_to_digits(double value, int digits) {
  char text[32];
  const auto end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::general, digits);
  std::from_chars(text, end.ptr, value);
  return value;
}

/// Returns x, given 1/√x, rounded to 14 digits, so that 32 is read and written as 32.
double of_reciprocal_root(double there) { return rounded_to_digits(1 / (there * there), 14); }
double of_reciprocal(double there) { return 1 / there; }

/// Returns the file's number `there`, rounded to the fewest digits that still convert to `value`.
double round_to_few_digits(double there, double value, double (*of)(double there)) {
  for (const int digits : {13, 15}) {
    const double few = rounded_to_digits(there, digits);
    if (of(few) == value) return few;
  }
  return there;
}

double read_positive(ConfigReader& reader, const std::string& key) {
  double there = 1;
  reader.read(there, key, 1);
  if (there > 0 && !std::isinf(there)) return there;
  reader.problem(concat(key, ": got ", there, ", want a number above 0"));
  return 1;
}

}  // namespace

template <class T>
void ConfigKeys::member(const std::string& key, T& value, std::optional<double> missing) {
  if (reader_ != nullptr) return reader_->read(value, key, missing);
  (*written_)[first_key(key)] = json_of(whole(value));
}
template void ConfigKeys::member(const std::string&, bool&, std::optional<double>);
template void ConfigKeys::member(const std::string&, std::int64_t&, std::optional<double>);
template void ConfigKeys::member(const std::string&, double&, std::optional<double>);

template <class T>
void ConfigKeys::nullable(const std::string& key, T& value, double missing) {
  if (reader_ != nullptr) return reader_->read_nullable(value, key, missing);
  (*written_)[key] = value == 0 ? json::value() : json::value(value);
}
template void ConfigKeys::nullable(const std::string&, std::int64_t&, double);
template void ConfigKeys::nullable(const std::string&, double&, double);

void ConfigKeys::reciprocal(const std::string& key, double& value) {
  if (reader_ != nullptr) {
    value = of_reciprocal(read_positive(*reader_, key));
  } else {
    (*written_)[key] = round_to_few_digits(1 / value, value, of_reciprocal);
  }
}

void ConfigKeys::reciprocal_root(const std::string& key, double& value) {
  if (reader_ != nullptr) {
    value = of_reciprocal_root(read_positive(*reader_, key));
  } else {
    (*written_)[key] = round_to_few_digits(1 / std::sqrt(value), value, of_reciprocal_root);
  }
}

void ConfigKeys::root_of_width(const std::string& key, double& value, std::int64_t width) {
  const double root = std::sqrt(static_cast<double>(width));
  if (reader_ != nullptr) {
    bool is_root = false;
    reader_->read(is_root, key, 0);
    value = is_root ? root : 1;
    return;
  }
  const bool is_root = value != 1 && std::abs(value - root) < 1e-9 * root;
  if (!is_root && value != 1)
    throw DataError(concat("config.json cannot store the factor of ", key, ": got ", value,
                           ", want 1 or ", root, ", the square root of the width"));
  (*written_)[key] = is_root;
}

void ConfigKeys::fixed(const std::string& key, const std::vector<ConfigValue>& values) {
  if (reader_ != nullptr) return reader_->expect(key, values);
  last_.emplace_back(key, values.front());
}

void ConfigKeys::derived(const std::string& key, const ConfigValue& value) {
  if (reader_ == nullptr) {
    (*written_)[key] = nullptr;
    return;
  }
  const json::value* const found = reader_->find(key);
  if (found != nullptr && *found != json_of(value))
    reader_->refuse(key, *found, "null or " + json_line(json_of(value)));
}

void ConfigKeys::write_only(const std::string& key, const ConfigValue& value) {
  if (reader_ != nullptr) return reader_->know(key);
  (*written_)[key] = json_of(value);
}

void ConfigKeys::inert(const std::vector<std::string>& keys) {
  if (reader_ == nullptr) return;
  for (const std::string& key : keys) reader_->know(key);
}

bool ConfigKeys::fit(const ModelConfig& model) {
  if (reader_ == nullptr || fits_) return fits_.value_or(true);
  std::vector<std::string> problems;
  collect_range_problems(model, "", problems);
  for (const std::string& problem : problems) reader_->problem(problem);
  fits_ = problems.empty();
  return *fits_;
}

}  // namespace hybrid_trainer
