#!/bin/sh
# kernel_resources.sh CUOBJDUMP MODULE
# Checks what the machine code of every kernel in the module takes of a multiprocessor, for every kind of GPU that the
# module is compiled for:
#   - static shared memory: 48 KiB at most, which every GPU gives without being asked (from 9.0 on the tool's number
#     includes 1 KiB of the system's own)
#   - registers: so few that the threads of a block fit (65,536 in all). A kernel without __launch_bounds__ is launched
#     with 256 threads at most.
#   - stack: at most 1 KiB; more would be a local array that was meant for registers
set -eu
cuobjdump=$1 module=$2
if [ ! -x "$cuobjdump" ]; then
    echo 'skipped, because cuobjdump is not installed (part of the CUDA toolkit; on PyPI nvidia-cuda-cuobjdump)'
    exit 0
fi
{ "$cuobjdump" --dump-resource-usage "$module" && "$cuobjdump" -elf "$module"; } 2>&1 | awk '
    function complain(what) { print architecture, name ": " what; failed = 1 }

    /^Fatbin ptx code/ { has_ptx = 1 }

    # Of the first listing.
    /^arch = / { architecture = $3 }
    /^ *Function .*:$/ { name = $2; sub(/:$/, "", name) }
    /^ *REG:[0-9]+ / {
        for (i = 1; i <= NF; ++i) { split($i, pair, ":"); of[pair[1]] = pair[2] }
        ++kernels
        registers[architecture, name] = of["REG"]
        most = 49152 + (architecture >= "sm_90" || architecture ~ /^sm_1[0-9][0-9]/ ? 1024 : 0)
        if (of["SHARED"] > most) complain("static shared memory of " of["SHARED"] " bytes")
        if (of["STACK"] > 1024) complain("a stack of " of["STACK"] " bytes")
        if (of["REG"] > 255) complain(of["REG"] " registers")
    }

    # Of the second.
    /^\.nv\.info\./ { name = substr($1, 10) }
    /EIATTR_MAX_THREADS/ { wanted = 1; next }
    wanted && /Value:/ {
        wanted = 0
        threads = number($2) * number($3) * number($4)
        ++bounded
        if (registers[architecture, name] * threads > 65536)
            complain(registers[architecture, name] " registers in each of " threads " threads")
        if (!((architecture, name) in registers)) complain("launch bounds of an unknown kernel")
    }
    function number(hexadecimal,    i, value) {
        value = 0
        for (i = 3; i <= length(hexadecimal); ++i)
            value = 16 * value + index("0123456789abcdef", tolower(substr(hexadecimal, i, 1))) - 1
        return value
    }

    END {
        if (!kernels && has_ptx) { print "skipped, because the module has PTX alone"; exit }
        if (!kernels) { print "no kernel was found"; exit 1 }
        if (!bounded) { print "no kernel with launch bounds was found: has the output of cuobjdump changed?"; exit 1 }
        print kernels " kernels, " bounded " of them with launch bounds"
        exit failed
    }'
