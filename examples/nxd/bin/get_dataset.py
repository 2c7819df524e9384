#!/bin/sh
# Read by sh and by python3; both start drover.
''':'
[ $# -gt 0 ] || set -- --llama-version 3
exec "${DROVER:-drover}" tokenize "$@"
'''
import os, sys
os.execvp("sh", ["sh", __file__, *sys.argv[1:]])
