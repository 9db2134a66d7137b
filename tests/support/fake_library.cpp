extern "C" int ht_fake_version() { return 120400; }
extern "C" int ht_fake_twice(int x) { return 2 * x; }
