// A module for program_module_test.cpp.
extern "C" int drover_sundial_module_version() {
    return 3;
}

extern "C" int drover_sundial_hour() {
    return 12;
}
