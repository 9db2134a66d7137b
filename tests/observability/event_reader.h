#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer::testing {

/// Value of one tag at one step in an event file.
struct EventValue {
  double wall_time = 0;
  std::int64_t step = 0;
  float number = 0;
  std::string text;
};

struct ReadEvents {
  std::string version;
  int restarts = 0;
  std::map<std::string, std::vector<EventValue>> tags;
};

/// An independent reader of the Protocol Buffers wire format in TFRecord files. Throws
/// std::runtime_error if a file is truncated or a checksum is wrong.
class EventReader {
 public:
  static void read(std::string_view file, ReadEvents& events) {
    while (!file.empty()) add_event(record_of(file), events);
  }

 private:
  static std::uint64_t fixed(std::string_view& from, std::size_t bytes) {
    if (from.size() < bytes) throw std::runtime_error("torn");
    std::uint64_t value = 0;
    for (std::size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(from[i]);
    from.remove_prefix(bytes);
    return value;
  }

  /// Computes the checksum bit by bit, unlike the writer.
  static std::uint32_t masked_checksum(std::string_view bytes) {
    std::uint32_t rest = ~0u;
    for (const unsigned char byte : bytes) {
      for (int bit = 0; bit < 8; ++bit) {
        const bool flips = ((rest ^ (byte >> bit)) & 1) != 0;
        rest = (rest >> 1) ^ (flips ? 0x82F63B78u : 0u);
      }
    }
    rest = ~rest;
    return (rest >> 15 | rest << 17) + 0xA282EAD8u;
  }

  static std::string_view record_of(std::string_view& file) {
    const std::string_view head = file.substr(0, 8);
    const std::uint64_t length = fixed(file, 8);
    if (fixed(file, 4) != masked_checksum(head)) throw std::runtime_error("length's checksum");
    if (file.size() < length) throw std::runtime_error("torn");
    const std::string_view data = file.substr(0, length);
    file.remove_prefix(length);
    if (fixed(file, 4) != masked_checksum(data)) throw std::runtime_error("data's checksum");
    return data;
  }

  static std::uint64_t varint(std::string_view& from) {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = fixed(from, 1);
      value |= (byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return value;
    }
  }

  /// Calls visit(field, number, bytes) for each field of a message.
  template <class Visit>
  static void fields(std::string_view message, const Visit& visit) {
    while (!message.empty()) {
      const std::uint64_t key = varint(message);
      const int field = static_cast<int>(key >> 3);
      switch (key & 7) {
        case 0: visit(field, varint(message), std::string_view()); break;
        case 1: visit(field, fixed(message, 8), std::string_view()); break;
        case 5: visit(field, fixed(message, 4), std::string_view()); break;
        case 2: {
          const std::uint64_t length = varint(message);
          if (message.size() < length) throw std::runtime_error("torn");
          visit(field, 0, message.substr(0, length));
          message.remove_prefix(length);
          break;
        }
        default: throw std::runtime_error("unknown wire type");
      }
    }
  }

  static void add_event(std::string_view event, ReadEvents& events) {
    EventValue at;
    std::vector<std::string_view> values;
    fields(event, [&](int field, std::uint64_t number, std::string_view bytes) {
      if (field == 1) at.wall_time = std::bit_cast<double>(number);
      if (field == 2) at.step = static_cast<std::int64_t>(number);
      if (field == 3) events.version = bytes;
      if (field == 7) ++events.restarts;
      if (field != 5) return;
      fields(bytes, [&](int, std::uint64_t, std::string_view value) { values.push_back(value); });
    });
    for (const std::string_view value : values) add_value(value, at, events);
  }

  static void add_value(std::string_view message, EventValue value, ReadEvents& events) {
    std::string tag, plugin;
    fields(message, [&](int field, std::uint64_t number, std::string_view bytes) {
      if (field == 1) tag = bytes;
      if (field == 2) value.number = std::bit_cast<float>(static_cast<std::uint32_t>(number));
      if (field == 8) value.text = string_of_tensor(bytes);
    });
    events.tags[tag].push_back(value);
  }

  static std::string string_of_tensor(std::string_view tensor) {
    std::string text;
    fields(tensor, [&](int field, std::uint64_t, std::string_view bytes) {
      if (field == 8) text = bytes;
    });
    return text;
  }
};

}  // namespace hybrid_trainer::testing
