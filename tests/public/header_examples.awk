# header_examples.awk HEADER…: writes a program of the examples in the headers' doc comments, a function for each.
# Fails if an exported class has none.
BEGIN {
    print "// Made from the public headers by tests/public/header_examples.awk."
    print "#include <drover/drover.h>\n\n#include <cstdint>\n#include <cstdio>\n#include <map>\n#include <memory>"
    print "#include <string>\n#include <vector>\n"
}
FNR == 1 { code = ""; inside = 0 }
/^ *\/\/\/ ```cpp$/ { inside = 1; code = "#line " FNR + 1 " \"" FILENAME "\"\n"; next }
/^ *\/\/\/ ```$/ { inside = 0; next }
inside { sub(/^ *\/\/\/ ?/, ""); code = code $0 "\n"; next }
/^ *(class|struct) [A-Za-z_ ]*\{/ {
    name = $2 == "DROVER_EXPORT" ? $3 : $2
    if (code != "") {
        print "static void example_of_" name "() {\n" code "}\n"
        names[++count] = name
    } else if ($1 == "class" && $2 == "DROVER_EXPORT") {
        print FILENAME ":" FNR ": " name " has no example in its doc comment." > "/dev/stderr"
        failed = 1
    }
}
!/^ *\/\/\// { code = "" }
END {
    print "int main() {"
    for (i = 1; i <= count; ++i) print "    std::puts(\"" names[i] "\");\n    example_of_" names[i] "();"
    print "    return 0;\n}"
    if (count == 0) failed = 1
    exit failed
}
