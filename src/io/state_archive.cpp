#include <bit>
#include <cstring>

#include "src/io/checkpoint_files.h"

namespace hybrid_trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they are");

/// Begins the bytes, as in cereal's portable archives: numbers are little-endian.
constexpr char kLittleEndian = 1;

class StateWriter {
 public:
  void put(std::int64_t value) { append(value); }
  void put(double value) { append(value); }
  void put(const std::string& text) {
    append(std::uint64_t{text.size()});
    bytes_ += text;
  }
  void put(const std::vector<double>& numbers) {
    append(std::uint64_t{numbers.size()});
    for (const double number : numbers) append(number);
  }
  template <class T>
  void put(const std::map<std::string, T>& values) {
    append(std::uint64_t{values.size()});
    for (const auto& [name, value] : values) {
      put(name);
      put(value);
    }
  }
  std::string take() { return std::move(bytes_); }

 private:
  template <class Number>
  void append(Number number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  std::string bytes_{kLittleEndian};
};

/// Takes values from the front. No length is believed before as many bytes are there.
class StateReader {
 public:
  explicit StateReader(std::string_view bytes) : rest_(bytes) {
    if (take(1)[0] != kLittleEndian) refuse("numbers of another byte order");
  }
  void get(std::int64_t& value) { value = number<std::int64_t>(); }
  void get(double& value) { value = number<double>(); }
  void get(std::string& text) { text = take(count(1)); }
  void get(std::vector<double>& numbers) {
    numbers.resize(count(sizeof(double)));
    for (double& value : numbers) get(value);
  }
  template <class T>
  void get(std::map<std::string, T>& values) {
    for (std::uint64_t left = count(2 * sizeof(std::uint64_t)); left > 0; --left) {
      std::string name;
      get(name);
      get(values[name]);
    }
  }
  void expect_end() const {
    if (!rest_.empty()) refuse("bytes after its end");
  }

 private:
  [[noreturn]] static void refuse(const char* what) {
    throw DataError(concat("state.bin: not what this version writes: it has ", what));
  }
  std::string_view take(std::uint64_t bytes) {
    if (bytes > rest_.size()) refuse("fewer bytes than it says");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  /// Of elements that take so many bytes each at least.
  std::uint64_t count(std::size_t least) {
    const auto value = number<std::uint64_t>();
    if (value > rest_.size() / least) refuse("fewer elements than it says");
    return value;
  }
  std::string_view rest_;
};

}  // namespace

std::string state_bytes(const State& state) {
  StateWriter writer;
  writer.put(state.integers);
  writer.put(state.reals);
  writer.put(state.series);
  writer.put(state.texts);
  return writer.take();
}

void read_state_bytes(const std::string& bytes, State& state) {
  StateReader reader(bytes);
  reader.get(state.integers);
  reader.get(state.reals);
  reader.get(state.series);
  reader.get(state.texts);
  reader.expect_end();
}

}  // namespace hybrid_trainer
