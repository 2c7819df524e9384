#!/bin/sh
# Read by sh and by python3; both start drover.
''':'
exec "${DROVER:-drover}" run_llama_nxd "$@"
'''
import os, sys
os.execvp("sh", ["sh", __file__, *sys.argv[1:]])
