#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hybrid_trainer::units {

/// Numbers in human-readable form.
std::string fixed(double value, int decimals);  // "3.142"
std::string count(double value);                // "950", "12.3k", "1.24M"
std::string grouped(std::int64_t value);        // "1,234,567"
std::string millions(std::int64_t value);       // "1234", from 10,000 on "0.01 M"
std::string bytes(std::size_t bytes);           // "412 MB", in powers of 1000
std::string duration(double seconds);           // "48s", "3m 05s", "2h 14m", "3d 04h"

}  // namespace hybrid_trainer::units
